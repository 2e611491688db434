// Options as messages, and who is asked for them.
#include "daemon/control/convert_settings.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "tests/support/control/grpc_fixture.h"

namespace tier::control {
namespace {

session::OptionState Deadline() {
  return {.name = "engine.deadline",
          .running = "\"10s\"",
          .by_default = "\"60s\"",
          .in_file = "\"30s\"",
          .changes_at_run_time = true,
          .set_at_run_time = true,
          .help = "How long"};
}

TEST(ConvertSettings, AnOptionHasItsThreeValues) {
  v1::DaemonOption message;
  ToMessage(Deadline(), &message);
  EXPECT_EQ(message.name(), "engine.deadline");
  EXPECT_EQ(message.value(), "\"10s\"");
  EXPECT_EQ(message.default_value(), "\"60s\"");
  EXPECT_EQ(message.file_value(), "\"30s\"");
  EXPECT_TRUE(message.changes_at_run_time());
  EXPECT_TRUE(message.set_at_run_time());
  EXPECT_EQ(message.help(), "How long");
}

TEST(ConvertSettings, WhatWasNotReadIsAbsent) {
  session::OptionState option = Deadline();
  option.in_file.reset();
  v1::ListOptionsResponse message;
  ToMessage(session::SettingsReport{.file = "/etc/x.toml", .file_error = "line 3", .options = {option}}, &message);
  EXPECT_EQ(message.file(), "/etc/x.toml");
  EXPECT_EQ(message.file_error(), "line 3");
  ASSERT_EQ(message.options_size(), 1);
  EXPECT_FALSE(message.options(0).has_file_value());
}

class Settings : public test::GrpcFixture {};

TEST_F(Settings, AreListedAndSetOverTheSocket) {
  api_.settings = {.file = "/etc/x.toml", .file_error = {}, .options = {Deadline()}};
  grpc::ClientContext list_context;
  SetDeadline(&list_context);
  v1::ListOptionsResponse listed;
  ASSERT_TRUE(Stub(options_.control_socket)->ListOptions(&list_context, {}, &listed).ok());
  ASSERT_EQ(listed.options_size(), 1);
  EXPECT_EQ(listed.options(0).value(), "\"10s\"");
  EXPECT_FALSE(api_.callers.back().admin) << "it came by control.sock";

  v1::SetOptionRequest request;
  request.set_name("engine.deadline");
  request.set_value("5s");
  grpc::ClientContext set_context;
  SetDeadline(&set_context);
  v1::SetOptionResponse response;
  ASSERT_TRUE(Stub(options_.admin_socket)->SetOption(&set_context, request, &response).ok());
  EXPECT_EQ(response.option().value(), "5s");
  EXPECT_TRUE(api_.callers.back().admin);
}

TEST_F(Settings, ARefusalHasItsCode) {
  api_.refusal = {Code::kDenied, "only an administrator may set an option"};
  grpc::ClientContext context;
  SetDeadline(&context);
  v1::SetOptionResponse response;
  const grpc::Status refused = Stub(options_.control_socket)->SetOption(&context, {}, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(refused.error_message(), "only an administrator may set an option");
}

}  // namespace
}  // namespace tier::control
