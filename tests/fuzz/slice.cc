// A fuzz entry point over mutations of its corpus for some seconds, from a seed that the caller draws: `NAME_slice SEED
// SECONDS`. It needs no fuzzer, so that CI runs one in every build. `NAME_slice SEED SECONDS INPUT` runs that one
// input.
//
// Input i follows from the seed and i alone. Who dies of one says which, and how to have it again.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "tests/fuzz/mutation.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace tier::fuzz {
namespace {

char replay[512];  // The command that has the current input again; complete before it runs.

void PrintReplay() { (void)!::write(STDERR_FILENO, replay, std::strlen(replay)); }

void PrintReplayAndDie(int number) {
  PrintReplay();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void RunInput(const char* program, uint64_t seed, uint64_t number, const std::vector<Input>& corpus) {
  std::snprintf(replay, sizeof replay, "replay: %s %lu 0 %lu\n", program, seed, number);
  std::seed_seq both{seed, seed >> 32, number, number >> 32};
  std::mt19937_64 random(both);
  const Input input = Mutated(random, corpus);
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

int Run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s SEED SECONDS [INPUT]\n", argv[0]);
    return 2;
  }
  const uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  const auto ticks = static_cast<std::clock_t>(std::strtoull(argv[2], nullptr, 10)) * CLOCKS_PER_SEC;
  const auto corpus = ReadCorpus(TIER_FUZZ_CORPUS);
  ::signal(SIGABRT, PrintReplayAndDie);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(PrintReplay);
  if (argc > 3) {
    RunInput(argv[0], seed, std::strtoull(argv[3], nullptr, 10), corpus);
    return 0;
  }
  uint64_t ran = 0;
  for (; std::clock() < ticks; ++ran) RunInput(argv[0], seed, ran, corpus);
  std::printf("%lu mutations of %zu inputs, no finding\n", ran, corpus.size());
  return 0;
}

}  // namespace
}  // namespace tier::fuzz

int main(int argc, char** argv) { return tier::fuzz::Run(argc, argv); }
