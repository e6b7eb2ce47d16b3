// cachectl: inspects and changes what the cache service keeps. Exit status: 0;
// 1 when it cannot be reached or refuses; 2 for bad usage; 3 when verify found
// a damaged file.
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "cachesvc/cachectl/commands.h"
#include "shared/attach/paths.h"
#include "shared/daemon.h"

namespace holdfast::cachesvc {
namespace {

using Verb = std::function<int(CacheClient&)>;

// What the command line asks for.
class CommandLine {
 public:
  CommandLine() : app_("Inspects and changes Holdfast's caches", "cachectl") {
    app_.set_version_flag("--version", HOLDFAST_VERSION);
    app_.add_option("--run-dir", options_.run_dir,
                    "folder of the daemons' sockets")
        ->capture_default_str();
    app_.require_subcommand(1);
    AddReading();
    AddChanging();
    AddSessions();
  }

  int Run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success& success) {  // --help, --version
      return app_.exit(success);
    } catch (const CLI::RequiredError&) {
      std::fprintf(stderr, "%s\nRun with --help for more information.\n",
                   WhatIsMissing().c_str());
      return kExitUsage;
    } catch (const CLI::ParseError& error) {
      app_.exit(error);
      return kExitUsage;
    }
    const std::string path = attach::CacheSocketPath(options_.run_dir);
    if (const auto target = UnixTarget(path); !target.ok()) {
      std::fprintf(stderr, "cache service not reachable at %s: %s\n",
                   path.c_str(),
                   std::string(target.status().message()).c_str());
      return kExitFailed;
    }
    CacheClient client(path);
    return verb_(client);
  }

 private:
  using Plain = int (*)(CacheClient&, const CtlOptions&);

  // CLI11 says of words only that one is required, not which were given.
  std::string WhatIsMissing() const {
    const CLI::App* at = &app_;
    std::string words = at->get_name();
    for (auto given = at->get_subcommands(); !given.empty();
         given = at->get_subcommands()) {
      at = given.front();
      words += " " + at->get_name();
    }
    std::string known;
    for (const CLI::App* word :
         at->get_subcommands([](const CLI::App*) { return true; })) {
      known += (known.empty() ? "" : ", ") + word->get_name();
    }
    const std::vector<std::string> unknown = app_.remaining(/*recurse=*/true);
    if (!unknown.empty()) words += ": there is no \"" + unknown.front() + "\"";
    if (!known.empty()) {
      return words + (unknown.empty() ? ": a word is missing" : "") +
             ": one of " + known;
    }
    for (const CLI::Option* option : at->get_options()) {
      if (option->get_required() && option->empty())
        return words + ": " + option->get_name() + " is required";
    }
    return words + ": something is missing";
  }

  CLI::App* Add(CLI::App& parent, const std::string& name,
                const std::string& help, Verb verb) {
    CLI::App* added = parent.add_subcommand(name, help);
    added->fallthrough();  // --run-dir may come after the verb
    added->callback([this, verb = std::move(verb)] { verb_ = verb; });
    return added;
  }
  CLI::App* Add(const std::string& name, const std::string& help, Plain verb) {
    CLI::App* added = Add(app_, name, help, [this, verb](CacheClient& client) {
      return verb(client, options_);
    });
    added->add_flag("--json", options_.json, "print one JSON object");
    return added;
  }
  CLI::Option* Tier(CLI::App* verb, const std::string& help) {
    return verb->add_option("--tier", options_.tier, help);
  }

  void AddReading() {
    Add("status", "the attached engine, its layout, and the tiers", ShowStatus);
    Add("stats", "counters by tier, and the engine's", ShowStats)
        ->add_flag("--watch", options_.watch, "again every 2 seconds");
    Add("du", "bytes by tier", ShowUse);
    CLI::App* ls = Add("ls", "what is on disk", List);
    options_.what = "anchors";
    ls->add_option("what", options_.what, "anchors, sessions, chunks or store")
        ->check(CLI::IsMember({"anchors", "sessions", "chunks", "store"}))
        ->capture_default_str();
    ls->add_option("--sort", options_.sort, "key, tokens, bytes, hits, unused")
        ->check(CLI::IsMember({"key", "tokens", "bytes", "hits", "unused"}))
        ->capture_default_str();
    ls->add_option("--limit", options_.limit, "at most so many");
    ls->add_flag("--foreign", options_.foreign,
                 "those of models that are not attached");
    ls->add_option("--session", options_.session_key,
                   "those of one session key");
    Add("show", "one anchor or session", Show)
        ->add_option("key", options_.keys, "its key, or the start of it")
        ->required()
        ->expected(1);
    CLI::App* verify = Add("verify", "read and check every byte", Verify);
    verify->add_option("key", options_.keys, "keys, or the starts of them");
    verify->add_flag("--all", options_.all, "every anchor and session");
    verify->add_flag("--delete", options_.delete_bad,
                     "delete what is damaged, with all that needs it");
  }

  void AddChanging() {
    CLI::App* evict = Add("evict", "drop entries", Evict);
    evict->add_option("key", options_.keys, "keys, or the starts of them");
    evict->add_option("--older-than", options_.older_than,
                      "those unused for so long: 7d, 12h, 30m, 90s");
    evict->add_option("--bytes", options_.bytes,
                      "the least valuable, up to so many bytes: 5GB");
    options_.tier = "disk";
    Tier(evict, "of --older-than and --bytes")
        ->check(CLI::IsMember({"disk", "spill"}))
        ->capture_default_str();
    CLI::App* clear = Add("clear", "drop a whole tier, pinned ones too", Clear);
    Tier(clear, "store, disk or spill")
        ->check(CLI::IsMember({"store", "disk", "spill"}))
        ->required();
    clear->add_flag("--foreign", options_.foreign,
                    "only of models that are not attached");
    for (const bool pinned : {true, false}) {
      Add(app_, pinned ? "pin" : "unpin",
          pinned ? "keep an entry: it is never evicted and never expires"
                 : "let an entry go in its turn again",
          [this, pinned](CacheClient& client) {
            return Pin(client, options_, pinned);
          })
          ->add_option("key", options_.keys, "its key, or the start of it")
          ->required()
          ->expected(1);
    }
    CLI::App* set = app_.add_subcommand("set", "change limits; they persist");
    set->fallthrough();
    set->require_subcommand(1);
    CLI::App* disk =
        Add(*set, "disk", "of everything on disk",
            [this](CacheClient& client) { return SetDisk(client, options_); });
    disk->add_flag("--json", options_.json, "print one JSON object");
    disk->add_option("--budget", options_.disk_budget, "of anchors: 50GB");
    disk->add_option("--spill-budget", options_.spill_budget,
                     "of conversations: 40GB");
    disk->add_option("--ttl", options_.ttl, "unused entries go after: 7d");
    disk->add_option("--free", options_.free_space,
                     "stays free on the file system: 50GB");
    Add("rebuild-index", "read every file anew; lookups miss meanwhile",
        RebuildIndex);
  }

  void AddSessions() {
    CLI::App* session = app_.add_subcommand(
        "session", "conversations on disk. Switching to one is not built");
    session->fallthrough();
    session->require_subcommand(1);
    CLI::App* list =
        Add(*session, "list", "those on disk", [this](CacheClient& client) {
          options_.what = "sessions";
          return List(client, options_);
        });
    list->add_flag("--json", options_.json, "print one JSON object");
    CLI::App* save = Add(
        *session, "save", "write a resident one to the disk now, pinned",
        [this](CacheClient& client) { return SaveSession(client, options_); });
    save->add_option("session", options_.session_key,
                     "its session key; without: the one used last");
    save->add_flag("--json", options_.json, "print one JSON object");
    Add(*session, "drop", "delete one",
        [this](CacheClient& client) { return Evict(client, options_); })
        ->add_option("key", options_.keys, "its key, or the start of it")
        ->required();
  }

  CLI::App app_;
  CtlOptions options_;
  Verb verb_;
};

}  // namespace
}  // namespace holdfast::cachesvc

int main(int argc, char** argv) {
  return holdfast::cachesvc::CommandLine().Run(argc, argv);
}
