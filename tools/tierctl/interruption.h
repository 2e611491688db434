// What a verb says when it is interrupted, where something stays behind without a word of it.
#pragma once

namespace tier::tierctl {

// From now on SIGINT and SIGTERM print `sentence`, a literal, on standard error before they end this process, which
// they do as without it: a shell sees 130 and 143. The latest one counts. Signals that are ignored stay so.
void SayWhenInterrupted(const char* sentence);

}  // namespace tier::tierctl
