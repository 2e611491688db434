// One call of a running daemon, from the connection to the answer in the hands of the verb.
#pragma once

#include <chrono>
#include <utility>

#include "tools/tierctl/connection.h"
#include "tools/tierctl/daemon_options.h"

namespace tier::tierctl {

// Connects and calls.
template <typename ResponseMessage, typename Method, typename RequestMessage>
Result<ResponseMessage> AnswerTo(const DaemonOptions& options, Method method, const RequestMessage& request,
                                 std::chrono::milliseconds timeout = control_client::kCallTimeout) {
  const auto channel = Connect(options);
  if (!channel) return std::unexpected(channel.error());
  ResponseMessage response;
  if (const auto status = (*channel)->Call(method, request, &response, timeout); !status)
    return std::unexpected(status.error());
  return response;
}

// As AnswerTo, and hands the response to `show`; or explains what went wrong. Returns an exit code.
template <typename ResponseMessage, typename Method, typename RequestMessage, typename Show>
int Ask(const DaemonOptions& options, Method method, const RequestMessage& request, Show&& show) {
  auto response = AnswerTo<ResponseMessage>(options, method, request);  // A verb may change it.
  if (!response) return Explain(response.error());
  return show(*response);
}

// As Ask, for all pages of a list, or for as many as `more` wants (Channel::CallPages).
template <typename ResponseMessage, typename Method, typename RequestMessage, typename More, typename Show>
int AskPages(const DaemonOptions& options, Method method, const RequestMessage& request, More&& more, Show&& show) {
  const auto channel = Connect(options);
  if (!channel) return Explain(channel.error());
  ResponseMessage whole;
  const auto status = (*channel)->CallPages(method, request, &whole, more);
  if (!status) return Explain(status.error());
  return show(whole);
}

}  // namespace tier::tierctl
