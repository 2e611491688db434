// Command lines that name no verb, or a verb or option that there is not: told in our words, with what was meant.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tier::tierctl {

// "unknown verb 'frob'; one of …", for the first such word; nothing if each is known. Options behind a verb are the
// parser's to judge. Without the program's name.
std::optional<std::string> UnknownWord(const CLI::App& app, const std::vector<std::string>& arguments);

// "unknown option '--guarante' of job set; did you mean …", for the first such option of a command line that the parser
// has refused. Nothing if each is known, or no verb is named.
std::optional<std::string> UnknownOption(const CLI::App& app, const std::vector<std::string>& arguments);

// Where the words end before a verb: the help that lists those to choose from. Nothing if there is one, or one that is
// unknown, or a wish for help or version.
std::optional<std::string> MissingVerb(const CLI::App& app, const std::vector<std::string>& arguments);

// "help job set" is "job set --help".
std::vector<std::string> WithHelpAsOption(std::vector<std::string> arguments);
// Where nothing but options follows `noun`: with its verb behind them.
std::vector<std::string> WithVerbOfNoun(const CLI::App& app, std::vector<std::string> arguments,
                                        const std::string& noun, const std::string& verb);

// What the parser says of a command line, in our words: an argument is missing, and not "required".
std::string InOurWords(const std::string& sentence);

}  // namespace tier::tierctl
