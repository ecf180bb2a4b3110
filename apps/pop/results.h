// Results as JSON objects (docs/cli.md) and as lines for people.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/pop.h"

namespace pop::app {

using Json = nlohmann::ordered_json;

// What is common to all results: the options as they came out, the machine, the weights really read.
void add_common(Json& json, const ModelInfo& info, const PrunePlanInfo& plan, const ReadStats& reads);
Json run_json(const ModelInfo& info, const PrunePlanInfo& plan, const GenerateResult& result);
Json score_json(const Engine& engine, const PrunePlanInfo& plan, const ScoreRequest& request,
                const ScoreResult& result);
Json to_json(const RealisedRatio& realised);
Json to_json(const std::vector<FfnReads>& ffns);  // an object, by kind
Json profile_json(const std::vector<ProfilePart>& profile);

// One object, one line of its own on stdout. Bytes that are not UTF-8 become U+FFFD; what is not finite becomes null.
std::string to_text(const Json& json);
void print_json(const Json& json);

// "pop, ratio 0.2 (FFN 0.267), gamma 0.1"; "dense".
std::string describe(const PrunePlanInfo& plan);
// "9 prompt tokens at 310/s, 40 tokens at 52.1/s, 83.2 MB of weights per token (0.856 of dense)".
std::string describe(const GenerateResult& result);
// Of a mixture of experts "left out 0.138 of a token's blocks, 0.200 of all blocks", else "": ratios mean the one or the other.
std::string describe_realised(const ReadStats& reads);
std::string profile_table(const std::vector<ProfilePart>& profile);

// Rows of cells, the first left-aligned, the others right-aligned; one row per line.
std::string table(const std::vector<std::vector<std::string>>& rows);

double rate(double count, double seconds);                                                   // 0 for no time
std::string csv_field(std::string_view text);                                                // quoted where needed
void write_csv(const std::string& path, const std::vector<std::vector<std::string>>& rows);  // throws Error

}  // namespace pop::app
