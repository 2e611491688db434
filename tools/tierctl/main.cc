// tierctl: the operator's command. Parses the command line (CLI11) and calls one verb.

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "tools/tierctl/command_words.h"
#include "tools/tierctl/completion.h"
#include "tools/tierctl/config_verbs.h"
#include "tools/tierctl/daemon_verbs.h"
#include "tools/tierctl/device_purge.h"
#include "tools/tierctl/device_verbs.h"
#include "tools/tierctl/doctor.h"
#include "tools/tierctl/event_verbs.h"
#include "tools/tierctl/help_formatter.h"
#include "tools/tierctl/job_verbs.h"
#include "tools/tierctl/node_drain.h"
#include "tools/tierctl/pool_verbs.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/quota_verbs.h"
#include "tools/tierctl/report.h"
#include "tools/tierctl/socket_verbs.h"
#include "tools/tierctl/stall_verbs.h"
#include "tools/tierctl/tensor_verbs.h"
#include "tools/tierctl/top.h"
#include "tools/tierctl/user_names.h"
#include "tools/tierctl/words.h"

namespace tier::tierctl {
namespace {

constexpr const char* kJobHelp = "Name of the job; UID/NAME or OWNER/NAME, where several users have one of that name";

// Everything the options of all verbs fill in.
struct Arguments {
  DaemonOptions daemon;
  std::string job;
  std::string tensor;
  std::string path;
  std::string uuid;
  std::string owner;
  std::string shell;
  std::string svg;
  std::string report;
  JobWords sizes;
  QuotaWords quota;
  std::string option;
  std::string value;
  uint32_t device = 0;
  uint32_t max = 1000;
  std::optional<std::chrono::seconds> timeout;
  std::optional<Since> since;
  std::optional<std::string> uid;
  std::chrono::nanoseconds interval = std::chrono::seconds(1);
  bool follow = false;
  bool once = false;
  bool show_token = false;
  bool force = false;
  bool undo = false;
  bool wait = false;
  bool named = false;
  bool purge = false;
  bool lost = false;
  bool longest = false;
  bool torn = false;
};

// Its own description is left out of the help, where the option's words say it.
CLI::Validator Within(uint32_t least, uint32_t most) { return CLI::Range(least, most).description(""); }

class CommandLine {
 public:
  CommandLine() : app_("Operates tierd, the memory-tiering daemon.", "tierctl") {
    app_.formatter(std::make_shared<HelpFormatter>(ThisOutput().width));  // Before the verbs, which take it over.
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.set_version_flag("--version", "tierctl " TIER_VERSION, "Print the version of tierctl and exit");
    app_.add_flag("--json", args_.daemon.output.json, "Print JSON instead of tables");
    app_.add_option("--socket", args_.daemon.socket,
                    "Control or admin socket, or the directory of both (default: the usual places)")
        ->type_name("PATH")
        ->check([](const std::string& path) { return path.empty() ? "the path is empty" : ""; });
    app_.add_option("--token", args_.daemon.token, "Job token (default: $TIERD_JOB_TOKEN)")->type_name("TOKEN");
    app_.failure_message([](const CLI::App*, const CLI::Error& e) {
      return fmt::format("tierctl: {}\n--help behind a verb shows its arguments and options\n", InOurWords(e.what()));
    });
    app_.footer(
        "--json, --socket and --token may stand before or behind every verb.\nExit codes: 0 ok, 1 failure, 2 usage, 3 "
        "not found, 4 daemon unreachable, 5 refused, 6 degraded or drained.");
    AddTopVerbs();
    AddWatchingVerbs();
    AddJobVerbs();
    AddTensorVerbs();
    AddDeviceVerbs();
    AddPoolVerbs();
    AddQuotaVerbs();
    AddConfigVerbs();
    AddSocketVerbs();
  }

  int Run(std::vector<std::string> arguments) {
    arguments = WithVerbOfNoun(app_, WithHelpAsOption(std::move(arguments)), "quota", "show");
    if (const auto unknown = UnknownWord(app_, arguments)) {
      fmt::print(stderr, "tierctl: {}\n", *unknown);
      return kExitUsage;
    }
    if (const auto help = MissingVerb(app_, arguments)) {
      fmt::print(stderr, "{}", *help);
      return kExitUsage;
    }
    try {
      app_.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the back.
    } catch (const CLI::Success& e) {
      return app_.exit(e) == 0 ? kExitOk : kExitUsage;
    } catch (const CLI::ParseError& e) {
      return RefuseArguments(arguments, e);
    }
    const bool json = args_.daemon.output.json;
    args_.daemon.output = ThisOutput();
    args_.daemon.output.json = json;
    return verb_();
  }

 private:
  int RefuseArguments(const std::vector<std::string>& arguments, const CLI::ParseError& error) {
    std::optional<std::string> mistake = UnknownOption(app_, arguments);
    if (const size_t equals = args_.option.find('='); !mistake && equals != std::string::npos && args_.value.empty()) {
      mistake = fmt::format("write OPTION VALUE: tierctl config set {} {}", Printable(args_.option.substr(0, equals)),
                            Printable(args_.option.substr(equals + 1)));
    }
    if (!mistake) {
      (void)app_.exit(error);
      return kExitUsage;
    }
    fmt::print(stderr, "tierctl: {}\n", *mistake);
    return kExitUsage;
  }
  CLI::App* Verb(CLI::App* parent, const char* name, const char* help, std::function<int()> body) {
    CLI::App* verb = parent->add_subcommand(name, help);
    verb->fallthrough();
    verb->callback([this, body = std::move(body)] { verb_ = body; });
    return verb;
  }
  // As they are typed; the help shows them before what is said of all verbs.
  void Examples(CLI::App* verb, const std::vector<const char*>& examples, const std::string& more = "") {
    std::string text = more + (examples.size() == 1 ? "Example:\n" : "Examples:\n");
    for (const char* example : examples) text += fmt::format("  tierctl {}\n", example);
    verb->footer(text + "\n" + app_.get_footer());
  }
  CLI::App* Noun(const char* name, const char* help) {
    CLI::App* noun = app_.add_subcommand(name, help);
    noun->require_subcommand(1);
    noun->fallthrough();
    return noun;
  }

  void AddTopVerbs() {
    Examples(Verb(&app_, "status", "Version, modes, arena and devices of the daemon",
                  [this] { return ShowStatus(args_.daemon); }),
             {"status", "status --json | jq .degraded_by"});
    Examples(Verb(&app_, "doctor", "What this machine lacks, and the line to paste that grants it",
                  [this] { return Doctor(args_.daemon); }),
             {"doctor"});
    CLI::App* report =
        Verb(&app_, "report", "Write a file for who is to help: daemon, machine and log, without secrets",
             [this] { return WriteReport(args_.daemon, args_.report); });
    report->add_option("--output,-o", args_.report, "The file (default: tierd-report-HOST-TIME.tar.gz here)")
        ->type_name("FILE");
    Examples(report, {"report", "report -o /tmp/report.tar.gz"},
             "It has no job token and no byte of a tensor, but names of jobs and tensors, uids and paths. As root it\n"
             "has more. Without a daemon it has less: README.txt in it says what is missing, and why.\n\n");
    Examples(
        Verb(&app_, "version", "Versions of tierctl and of the daemon", [this] { return ShowVersion(args_.daemon); }),
        {"version"});
    CLI::App* drain = Verb(
        &app_, "drain",
        "Take no new job or process, let those that run go on, and write everything dirty to SSD; or that of one job",
        [this] { return Drain(args_.daemon, {.job = args_.job, .timeout = args_.timeout, .wait = args_.wait}); });
    CLI::Option* const job = drain->add_option("job", args_.job, "Only write what is dirty of this job");
    job->check([](const std::string& name) { return name.empty() ? "the name of the job is empty" : ""; });
    drain
        ->add_flag("--wait", args_.wait,
                   "Return when the last process has left, however long that takes; also where not all can be written")
        ->excludes(job);
    drain
        ->add_option_function<std::string>(
            "--timeout", [this](const std::string& text) { args_.timeout = ParseTimeout(text); },
            "How long the writes may take, such as 90 or 5min (60 s unless said, 1h at most); or with --wait how long "
            "all of it may take (no limit unless said)")
        ->type_name("TIME")
        ->check([](const std::string& text) {
          return ParseTimeout(text) ? "" : fmt::format("\"{}\" is no time; write 90, 90s, 5min or 2h", Printable(text));
        });
    Examples(drain, {"drain --wait && systemctl restart tierd", "drain --wait --timeout 7200", "drain train"});
    Examples(Verb(&app_, "undrain", "Take new jobs and processes again", [this] { return Undrain(args_.daemon); }),
             {"undrain"});
    Examples(Verb(&app_, "help", "This text, or that of the noun and verb that follow",
                  [this] {
                    fmt::print("{}", app_.help());
                    return kExitOk;
                  }),
             {"help job set"});
    CLI::App* completion = Verb(&app_, "completion", "Shell completion script", [this] { return PrintCompletion(); });
    completion->add_option("shell", args_.shell, "bash, zsh or fish")->required()->check(ShellMistake);
    Examples(completion, {"completion bash > ~/.local/share/bash-completion/completions/tierctl",
                          "completion fish > ~/.config/fish/completions/tierctl.fish"});
  }

  void AddWatchingVerbs() {
    CLI::App* top = Verb(&app_, "top", "Jobs and devices with their rates, as they change",
                         [this] { return ShowTop(args_.daemon, {.interval = args_.interval, .once = args_.once}); });
    top->add_option_function<std::string>(
           "--interval",
           [this](const std::string& text) { args_.interval = ParseInterval(text).value_or(args_.interval); },
           "Between two readings, 0.1 to 3600")
        ->type_name("SECONDS")
        ->check([](const std::string& text) {
          return ParseInterval(text)
                     ? ""
                     : fmt::format("\"{}\" is no time from 0.1 s to 1 h; write 0.5, 5, 500ms or 1min", Printable(text));
        })
        ->default_str("1");
    top->add_flag("--once", args_.once, "Print one table, of two readings, and end; also where there is no terminal");
    Examples(top, {"top", "top --interval 5", "top --once --json"}, kTopKeys);
    CLI::App* events =
        Verb(&app_, "events", "What has happened of late in the daemon, or with --follow as it happens",
             [this] { return ShowEvents(args_.daemon, {.since = args_.since, .follow = args_.follow}); });
    events->add_flag("--follow,-f", args_.follow, "Go on with what happens from now on, until interrupted");
    events
        ->add_option_function<std::string>(
            "--since", [this](const std::string& text) { args_.since = ParseSince(text); },
            "Only events behind the one with this number, which the last line and --json of each show; or of this time")
        ->type_name("SEQUENCE|TIME")
        ->check(SinceMistake);
    Examples(events, {"events --since 10min", "events --follow --json", "events --follow --since 1764223200000017"});
  }

  void AddJobVerbs() {
    CLI::App* noun = Noun("job", "Jobs: named users of the node");
    CLI::App* list =
        Verb(noun, "list", "All jobs that you may see", [this] { return ListJobs(args_.daemon, args_.lost); });
    list->add_flag("--lost", args_.lost, "Only what jobs persisted on SSD devices that are missing");
    Examples(list, {"job list", "job list --lost", "job list --json | jq '.jobs[] | [.name, .ram_bytes]'"});
    Examples(Verb(noun, "names", "Their names alone, one a line: for scripts and completion",
                  [this] { return ListJobNames(args_.daemon); }),
             {"job names"});
    CLI::App* show =
        Verb(noun, "show", "One job", [this] { return ShowJob(args_.daemon, args_.job, args_.show_token); });
    CLI::App* open = Verb(noun, "open", "Open a job for processes that will attach to it", [this] {
      return WithChange([this](const JobChange& c) { return OpenJob(args_.daemon, c, args_.named, args_.uid); });
    });
    CLI::App* set = Verb(noun, "set", "Change guarantees or limits",
                         [this] { return WithChange([this](const JobChange& c) { return ChangeJob(c); }); });
    CLI::App* stalls = Verb(noun, "stalls", "Requests that wait, or waited, for long: for which tensor, and for what",
                            [this] { return ShowStalls(args_.daemon, args_.job, args_.longest); });
    stalls->add_flag("--longest", args_.longest, "The longest first, instead of the newest");
    CLI::App* remove = Verb(noun, "remove", "End a job's sessions and free its tensors",
                            [this] { return RemoveJob(args_.daemon, args_.job, {args_.purge, args_.force}); });
    for (CLI::App* verb : {show, open, set, stalls, remove}) verb->add_option("job", args_.job, kJobHelp)->required();
    for (CLI::App* verb : {open, set}) {
      verb->add_option("--guarantee", args_.sizes.guarantee, "RAM that it always gets, such as 16GiB")
          ->type_name("SIZE");
      verb->add_option("--limit", args_.sizes.limit, "RAM beyond which it never grows, 2 MiB or more; 0: no limit")
          ->type_name("SIZE");
      verb->add_option("--ssd-guarantee", args_.sizes.ssd_guarantee,
                       "Space on SSD devices that its tensors may always take")
          ->type_name("SIZE");
      verb->add_option("--ssd-limit", args_.sizes.ssd_limit,
                       "Space on SSD that its tensors may never exceed; 0: no limit")
          ->type_name("SIZE");
    }
    show->add_flag("--show-token", args_.show_token, "Its token too; who has it may join the job");
    open->add_flag("--named", args_.named, "Keep it until it is removed");
    open->add_option("--uid", args_.uid, "For this user or owner: its first run joins without a token (administrators)")
        ->type_name("USER");
    remove->add_flag("--purge", args_.purge, "Its persisted tensors too, also where the job is not open");
    remove->add_flag("--force", args_.force, "Also while processes are attached, whose runs end with it");
    Examples(show, {"job show train", "job show 1001/train --show-token"});
    Examples(open, {"job open train --guarantee 16GiB", "job open nightly --named --limit 64GiB",
                    "job open step-4711 --uid 1001 --guarantee 64GiB"});
    Examples(set, {"job set train --limit 32GiB", "job set 1001/train --guarantee 8GiB --ssd-limit 0"});
    Examples(
        stalls, {"job stalls train", "job stalls 1001/train --longest"},
        "Long is what jobs.stall_threshold says (tierctl config set jobs.stall_threshold 1s). RAM: room within the\n"
        "job's share; SSD read, SSD write; lease: another lease, or an update that is not finished; budget: the\n"
        "work of the engine's turns; queue: behind other requests of the job.\n\n");
    Examples(remove, {"job remove train", "job remove --force 1001/train", "job remove --purge 1001/train"});
  }

  void AddTensorVerbs() {
    CLI::App* noun = Noun("tensor", "Tensors of a job");
    CLI::App* list = Verb(noun, "list", "Tensors and where they lie", [this] {
      return ListTensors(args_.daemon, args_.job, {.max = args_.max, .torn = args_.torn});
    });
    CLI::App* show = Verb(noun, "show", "One tensor, by key or id",
                          [this] { return ShowTensor(args_.daemon, args_.job, args_.tensor); });
    list->add_option("job", args_.job, kJobHelp)->required();
    list->add_option("--max", args_.max, "At most this many, 1 to 100000")
        ->type_name("COUNT")
        ->check(Within(1, 100'000))
        ->capture_default_str();
    list->add_flag("--torn", args_.torn, "Only those that a process which died left half changed, of all of the job");
    show->add_option("job", args_.job, kJobHelp)->required();
    show->add_option("tensor", args_.tensor, "Key, number or 0x…")->required();
    Examples(list, {"tensor list train --max 20", "tensor list train --torn"});
    Examples(show, {"tensor show train layers.0.weight", "tensor show train 0x1f"});
  }

  void AddDeviceVerbs() {
    CLI::App* noun = Noun("device", "SSD devices and files");
    Examples(Verb(noun, "list", "Devices of the daemon", [this] { return ListDevices(args_.daemon); }),
             {"device list"});
    CLI::App* show =
        Verb(noun, "show", "What the superblock of a device or file says, and how it does where tierd has it open",
             [this] { return ShowDevice(args_.path, args_.daemon); });
    CLI::App* format = Verb(noun, "format", "Write a fresh superblock (loses what lies there)",
                            [this] { return FormatDevice(args_.path, args_.force, args_.daemon.output); });
    CLI::App* drain =
        Verb(noun, "drain",
             "Empty a device: what jobs have there, and what closed jobs have persisted, moves to other devices",
             [this] { return DrainDevice(args_.daemon, args_.device, args_.undo); });
    CLI::App* retry = Verb(
        noun, "retry", "Use the quarantined places of a device again; its errors up to now make tierd degraded no more",
        [this] { return RetryDevice(args_.daemon, args_.device); });
    for (CLI::App* verb : {show, format}) verb->add_option("path", args_.path, "Block device or file")->required();
    format->add_flag("--force", args_.force, "Even over foreign content");
    drain->add_flag("--undo", args_.undo, "Use it again");
    for (CLI::App* verb : {drain, retry}) {
      verb->add_option_function<std::string>(
              "device", [this](const std::string& text) { args_.device = NumberIn(text).value_or(0); },
              "Number of the device (tierctl device list)")
          ->type_name("NUMBER")
          ->required()
          ->check([](const std::string& text) {
            return NumberIn(text) ? ""
                                  : fmt::format(
                                        "\"{}\" is no number of a device; 'tierctl device list' has them, 0 is "
                                        "the first",
                                        Printable(text));
          });
    }
    Examples(show, {"device show /var/lib/tierd/tier.ssd"});
    Examples(format, {"device format /dev/nvme1n1", "device format --force /dev/nvme1n1"});
    Examples(drain, {"device drain 1", "device drain 1 --undo"});
    Examples(retry, {"device retry 0"});
    CLI::App* purge = Verb(noun, "purge", "Give up a missing device for good, and all that jobs persisted on it",
                           [this] { return PurgeDevice(args_.daemon, args_.uuid, args_.force); });
    purge->add_option("uuid", args_.uuid, "UUID of the device (tierctl device list)")->required();
    purge->add_flag("--force", args_.force, "Even where jobs persisted something on it; without, that is shown");
    Examples(purge, {"device purge 956cd917-41c1-4fd0-8a5c-2b9e6f1d7a30",
                     "device purge --force 956cd917-41c1-4fd0-8a5c-2b9e6f1d7a30"});
  }

  void AddPoolVerbs() {
    CLI::App* noun = Noun("pool", "The memory that jobs share");
    CLI::App* map = Verb(noun, "map", "A picture of the arena: whose each window is, how full, and what comes and goes",
                         [this] { return ShowPoolMap(args_.daemon, args_.svg); });
    map->add_option("--svg", args_.svg, "Write the picture to this file too, as SVG")->type_name("FILE");
    Examples(map, {"pool map", "pool map --svg pool.svg"},
             "A cell is one window, or several where there are more than fit: its owner's letter, large for\n"
             "windows of whole blocks and small for windows of slots, and how far it is filled. Windows of jobs\n"
             "that you may not see are those of \"other users\". RUN is the longest run of free blocks, or of free\n"
             "pages where no block is free; BORROWED lies beyond what the job is promised; OWED is asked for\n"
             "within that and has not come yet.\n\n");
  }

  void AddQuotaVerbs() {
    CLI::App* noun = Noun("quota", "What all jobs of a user may have together; alone it is 'quota show'");
    CLI::App* show =
        Verb(noun, "show", "What users have of what they may have", [this] { return ShowQuotas(args_.daemon); });
    CLI::App* list =
        Verb(noun, "list", "The quotas that there are (administrators)", [this] { return ListQuotas(args_.daemon); });
    CLI::App* set = Verb(noun, "set", "Cap a user, the members of a group, or every user (administrators)",
                         [this] { return SetQuota(args_.daemon, args_.quota); });
    CLI::App* clear = Verb(noun, "clear", "What 'set' set is no more: the configuration decides (administrators)",
                           [this] { return ClearQuota(args_.daemon, args_.quota); });
    for (CLI::App* verb : {set, clear}) {
      verb->add_option("for", args_.quota.level, "default, user or group")->required();
      verb->add_option("name", args_.quota.name, "Of the user, owner of a socket, or group; or its number");
    }
    set->add_option("--ram", args_.quota.ram, "RAM of all its jobs, such as 64GiB; 0: it may have none; unlimited")
        ->type_name("SIZE");
    set->add_option("--ssd", args_.quota.ssd, "Tensors of all its jobs, and what they persisted")->type_name("SIZE");
    set->add_option("--guarantee", args_.quota.guarantee, "Guarantees of RAM of all its jobs")->type_name("SIZE");
    set->add_option("--jobs", args_.quota.jobs, "Open jobs; 0: it may have none; unlimited")->type_name("COUNT");
    Examples(show, {"quota show", "quota show --json | jq '.uses[] | [.uid, .ram.used]'"});
    Examples(list, {"quota list"});
    Examples(set, {"quota set default --ram 64GiB --jobs 8", "quota set group students --guarantee 0",
                   "quota set user alice --ram unlimited"});
    Examples(clear, {"quota clear user alice", "quota clear default"});
  }

  void AddConfigVerbs() {
    CLI::App* noun = Noun("config", "The options that the daemon runs with");
    CLI::App* get = Verb(noun, "get", "All options, or the value of one, as they hold now",
                         [this] { return GetConfig(args_.daemon, args_.option); });
    get->add_option("option", args_.option, "Name of the option, such as engine.deadline");
    CLI::App* diff = Verb(noun, "diff", "Options that are not as in the configuration file, or not at their defaults",
                          [this] { return DiffConfig(args_.daemon); });
    CLI::App* set = Verb(noun, "set", "Change an option of the running daemon, and not the file (administrators)",
                         [this] { return SetConfig(args_.daemon, args_.option, args_.value); });
    set->add_option("option", args_.option, "One of those that change at run time (config get)")->required();
    set->add_option("value", args_.value, "As behind --set on the command line of tierd")->required();
    Examples(get, {"config get", "config get engine.deadline"});
    Examples(diff, {"config diff", "config diff --json | jq '.options[] | select(.set_at_run_time)'"},
             "What the file says is shown to administrators alone. A file with a mistake is told, and ends the verb\n"
             "with status 1.\n\n");
    Examples(
        set, {"config set log.level debug", "config set engine.deadline 10s"},
        "It holds until the next reload or restart, which put back what the file says, or the command line of tierd\n"
        "where there is no file: write it there to keep it.\n\n");
  }

  void AddSocketVerbs() {
    CLI::App* noun =
        Noun("socket", "Sockets whose clients are one user, whatever their uid: for pods (administrators)");
    CLI::App* open = Verb(noun, "open", "Make a folder with the sockets of an owner, which outlive a restart",
                          [this] { return OpenSocket(args_.daemon, args_.owner); });
    CLI::App* close = Verb(noun, "close", "Take no new connection by them; what is connected goes on",
                           [this] { return CloseSocket(args_.daemon, args_.owner, args_.purge); });
    CLI::App* list = Verb(noun, "list", "Owners, their uids and folders", [this] { return ListSockets(args_.daemon); });
    for (CLI::App* verb : {open, close}) {
      verb->add_option("--owner", args_.owner, "Who connects is this one: a name of letters, digits and -_.")
          ->type_name("NAME")
          ->required();
    }
    close->add_flag("--purge", args_.purge, "Give up the name too: its uid is used for no other owner");
    Examples(open, {"socket open --owner pod-a"});
    Examples(close, {"socket close --owner pod-a", "socket close --owner pod-a --purge"});
    Examples(list, {"socket list", "socket list --json | jq '.sockets[] | select(.open) | .directory'"});
  }

  int WithChange(const std::function<int(const JobChange&)>& body) {
    args_.sizes.name = args_.job;
    const auto change = ChangeOf(args_.sizes);
    if (change) return body(*change);
    fmt::print(stderr, "tierctl: {}\n", change.error().message);
    return kExitUsage;
  }

  int ChangeJob(const JobChange& change) {
    if (change.guarantee_bytes || change.limit_bytes || change.ssd_guarantee_bytes || change.ssd_limit_bytes) {
      return SetJob(args_.daemon, change);
    }
    fmt::print(stderr,
               "tierctl: nothing to change; name --guarantee, --limit, --ssd-guarantee or --ssd-limit, or several\n");
    return kExitUsage;
  }

  int PrintCompletion() {
    fmt::print("{}", CompletionScript(args_.shell, CommandsOf(app_)));
    return kExitOk;
  }

  Arguments args_;
  CLI::App app_;
  std::function<int()> verb_;
};

}  // namespace
}  // namespace tier::tierctl

int main(int argc, char** argv) {
  using tier::tierctl::EndOutput;
  try {
    return EndOutput(tier::tierctl::CommandLine().Run(std::vector<std::string>(argv + 1, argv + argc)));
  } catch (const std::exception& e) {
    const auto* const io = dynamic_cast<const std::system_error*>(&e);  // As fmt::print tells it.
    if (io != nullptr && std::ferror(stdout) != 0) return EndOutput(tier::tierctl::kExitFailure, io->code().value());
    fmt::print(stderr, "tierctl: {}\n", e.what());
    return tier::tierctl::kExitFailure;
  }
}
