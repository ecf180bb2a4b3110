#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/error.h"

namespace pop {
namespace {

using Json = nlohmann::ordered_json;

const ChatTime kNow = {2026, 3, 7, 9, 5, 2};  // NOW of testdata/make_template_goldens.py

const Json& goldens() {
  static const Json kGoldens = Json::parse(std::ifstream("text/testdata/template_goldens.json"));
  return kGoldens;
}

std::string render(const std::string& source, const Json& context) {
  return ChatTemplate(source).render(context, kNow);
}

std::string error_of(const std::string& source, const Json& context = Json::object(), ChatTemplateLimits limits = {}) {
  try {
    return "no error but: " + ChatTemplate(source, limits).render(context, kNow).substr(0, 200);
  } catch (const Error& e) {
    return e.what();
  }
}

// What happens must be what jinja2 made: this text, or an error that names the line and carries the message.
void expect_case(const std::string& source, const Json& context, const Json& golden, const std::string& label) {
  try {
    std::string out = render(source, context);
    if (golden.contains("error")) {
      ADD_FAILURE() << label << ": expected an error, got " << out;
    } else {
      EXPECT_EQ(out, golden["out"].get<std::string>()) << label;
    }
  } catch (const Error& e) {
    std::string what = e.what();
    if (golden.contains("out")) {
      ADD_FAILURE() << label << ": expected " << golden["out"] << ", got the error " << what;
    } else {
      EXPECT_EQ(what.rfind("chat template line ", 0), 0u) << label << ": " << what;
      EXPECT_NE(what.find(golden["error"].get<std::string>()), std::string::npos) << label << ": " << what;
    }
  }
}

TEST(ChatTemplateGoldens, Conversations) {
  for (const Json& chat : goldens()["chats"]) {
    ChatPrompt prompt;
    prompt.bos_token = "<s>";
    prompt.eos_token = "</s>";
    prompt.now = kNow;
    std::string style = chat["style"], conversation = chat["conversation"];
    for (const auto& [key, value] : goldens()["conversations"][conversation].items()) {
      if (key == "messages") {
        prompt.messages = value;
      } else if (key == "tools") {
        prompt.tools = value;
      } else if (key == "add_generation_prompt") {
        prompt.add_generation_prompt = value;
      } else {
        prompt.extra[key] = value;
      }
    }
    ChatTemplate compiled(goldens()["styles"][style].get<std::string>());
    std::string what;
    try {
      std::string out = compiled.render(prompt);
      ASSERT_TRUE(chat.contains("out")) << style << " on " << conversation << ": expected an error, got " << out;
      EXPECT_EQ(out, chat["out"].get<std::string>()) << style << " on " << conversation;
    } catch (const Error& e) {
      what = e.what();
      ASSERT_TRUE(chat.contains("error")) << style << " on " << conversation << ": " << what;
      EXPECT_NE(what.find(chat["error"].get<std::string>()), std::string::npos) << style << ": " << what;
    }
  }
}

TEST(ChatTemplateGoldens, Expressions) {
  for (const char* group : {"expressions", "random"}) {
    ASSERT_GT(goldens()[group].size(), 400u);
    for (const Json& pair : goldens()[group]) {
      std::string source = "{{ " + pair[0].get<std::string>() + " }}";
      Json golden = pair[1].is_null() ? Json{{"error", ""}} : Json{{"out", pair[1]}};
      expect_case(source, goldens()["data"], golden, source);
    }
  }
}

TEST(ChatTemplateGoldens, Templates) {
  for (const char* group : {"templates", "errors"}) {
    ASSERT_GT(goldens()[group].size(), 100u);
    for (const Json& golden : goldens()[group]) {
      std::string source = golden["template"];
      expect_case(source, goldens()["data"], golden, source);
    }
  }
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n\n{{ x.y }}"), "chat template line 3: 'x' is undefined");
  EXPECT_EQ(error_of("a\n{% bad %}"), "chat template line 2: unknown or unsupported tag 'bad'");
  EXPECT_EQ(error_of("a\r\nb\r{{ 1|frobnicate }}"), "chat template line 3: unknown or unsupported filter 'frobnicate'");
  EXPECT_EQ(error_of("{{ 1 is odder }}"), "chat template line 1: unknown or unsupported test 'odder'");
  EXPECT_EQ(error_of("\n{{ raise_exception('Only one user turn') }}"), "chat template line 2: Only one user turn");
  EXPECT_EQ(error_of("{% if x %}\n\n"), "chat template line 2: the template ends before 'endif'");
  EXPECT_THROW(ChatTemplate("{{ 1|frobnicate }}"), Error);
  EXPECT_THROW(ChatTemplate("a\xff"), Error);
  EXPECT_EQ(error_of("a\n\xff"), "chat template line 2: the text is not valid UTF-8");
}

TEST(ChatTemplate, WhatIsNotSupportedIsAnError) {
  for (const char* source : {"{% for i in [[1]] recursive %}{{ loop(i) }}{% endfor %}",
                             "{{ lipsum() }}",
                             "{{ self }}",
                             "{{ [1]|map('upper') }}",
                             "{{ range }}",
                             "{{ 'a'.upper }}",
                             "{{ 9223372036854775807 + 1 }}",
                             "{{ 9223372036854775808 }}",
                             "{{ 3 ** 60 }}",
                             "{{ -9223372036854775807 - 2 }}",
                             "{{ 4611686018427387904 * 2 }}",
                             "{{ ('<'|e) + '<' }}",
                             "{{ ('<'|e).upper() }}",
                             "{{ (-9223372036854775807 - 1) // -1 }}",
                             "{{ -(-9223372036854775807 - 1) }}",
                             "{{ 'a'.encode() }}",
                             "{% autoescape true %}{% endautoescape %}",
                             "{{ 5.real }}",
                             "{{ n|xmlattr }}",
                             "{{ strftime_now('%Q') }}"}) {
    EXPECT_EQ(error_of(source).rfind("chat template line 1: ", 0), 0u) << source << ": " << error_of(source);
  }
  EXPECT_NE(error_of("{{ x }}", Json::parse(R"({"x": 18446744073709551615})")).find("out of range"), std::string::npos);
  EXPECT_NE(error_of("{{ x }}", Json{{"x", "\xff"}}).find("UTF-8"), std::string::npos);
  EXPECT_NE(error_of("x", Json::array()).find("object of variables"), std::string::npos);
}

std::string times(const std::string& text, size_t count) {
  std::string out;
  for (size_t k = 0; k < count; ++k) out += text;
  return out;
}

TEST(ChatTemplate, HostileTemplatesAreBounded) {
  ChatTemplateLimits limits;
  limits.steps = 300'000;
  limits.bytes = 8 << 20;
  const size_t deep = 50'000;
  for (const std::string& source : {
           "{{ " + times("(", deep) + "1" + times(")", deep) + " }}",
           "{{ " + times("[", deep) + times("]", deep) + " }}",
           "{{ " + times("{1:", deep) + "1" + times("}", deep) + " }}",
           "{{ " + times("-", deep) + "1 }}",
           "{{ " + times("not ", deep) + "1 }}",
           "{{ 1" + times(" + 1", deep) + " }}",
           "{{ x" + times(".a", deep) + " }}",
           "{{ x" + times("[0]", deep) + " }}",
           "{{ x" + times("()", deep) + " }}",
           "{{ 1" + times("|abs", deep) + " }}",
           "{{ 1" + times(" if 1 else 1", deep) + " }}",
           "{{ 1" + times(" if 1", deep) + " }}",
           "{{ x is" + times(" eq x is", deep),
           times("{% if 1 %}", deep) + times("{% endif %}", deep),
           times("{% for a in b %}", deep),
           "{{ f(" + times("f(", deep),
           times("{% macro m() %}", deep),
           "{% set " + times("(", deep),
           times("{% set a %}", deep),
           "{{ 1" + times("**1", deep) + "}}",
           std::string("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
           std::string("{{ range(100001) }}"),
           std::string("{{ range(9223372036854775807)|list }}"),
           std::string(
               "{{ range(-9223372036854775807, 9223372036854775807, 9223372036854775807)[::-9223372036854775807] }}"),
           std::string("{{ 'a' * 9223372036854775807 }}"),
           std::string("{{ [1] * 9223372036854775807 }}"),
           std::string("{{ 'x'.ljust(9223372036854775807) }}"),
           std::string("{{ '%999999999999d' % 1 }}"),
           std::string("{{ '{:>99999999999}'.format(1) }}"),
           std::string("{{ 'x'|indent(9223372036854775807) }}"),
           std::string("{{ 'x'|center(9223372036854775807) }}"),
           std::string("{{ [1]|tojson(indent=9223372036854775807) }}"),
           std::string("{{ [1]|batch(9223372036854775807, 1)|list }}"),
           std::string("{{ [1]|slice(9223372036854775807)|list }}"),
           std::string(
               "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"),
           std::string(
               "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"),
           std::string("{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                       "%}{{ ns.x }}"),
           std::string("{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                       "%}{{ ns.x|tojson }}"),
           std::string("{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
                       "%}{{ ns.x == [ns.x[0], [ns.x[0][0], ns.x[0][1]]] }}"),
           std::string("{% set ns = namespace(x=[1]) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"),
           std::string("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
           std::string("{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall "
                       "%}{% endmacro %}{{ r() }}"),
           std::string("{% for a in range(99999) %}{{ "
                       "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 9 }}{% endfor %}"),
           std::string("{% for a in range(99999) %}{% macro m() %}{% endmacro %}{% endfor %}"),
       }) {
    EXPECT_EQ(error_of(source, Json::object(), limits).rfind("chat template line ", 0), 0u)
        << source.substr(0, 90) << ": " << error_of(source, Json::object(), limits);
  }
  // Cycles through namespaces, macros and loop.changed are freed, and do not recurse when printed.
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}").find("not supported"),
            std::string::npos);
  EXPECT_EQ(render("{% for i in [1] %}{% set x = loop.changed(loop) %}{% endfor %}ok", Json::object()), "ok");
  EXPECT_NE(error_of("{% for i in [1] %}{{ loop.changed(loop) }}{{ x.y }}{% endfor %}").find("'x'"), std::string::npos);
  Json nested = 1;
  for (int k = 0; k < 1000; ++k) nested = Json::array({std::move(nested)});
  EXPECT_NE(error_of("x", Json{{"x", nested}}).find("nest too deeply"), std::string::npos);
}

// Every template of the goldens cut at places and with bytes flipped: an error or a result, and soon.
TEST(ChatTemplate, MutatedTemplatesGiveAnErrorOrAResult) {
  ChatTemplateLimits limits;
  limits.steps = 20'000;
  limits.bytes = 4 << 20;
  const Json& data = goldens()["data"];
  size_t results = 0, errors = 0;
  auto attempt = [&](const std::string& source, const Json& context) {
    try {
      ChatTemplate(source, limits).render(context, kNow);
      ++results;
    } catch (const Error& e) {
      ++errors;
      ASSERT_EQ(std::string(e.what()).rfind("chat template line ", 0), 0u) << e.what();
    }
  };
  Json context = goldens()["conversations"]["tool_call"];
  context["bos_token"] = "<s>";
  for (const char* style : {"qwen3", "llama", "typed"}) {
    std::string source = goldens()["styles"][style];
    for (size_t cut = 0; cut <= source.size(); ++cut) attempt(source.substr(0, cut), context);
  }
  uint64_t state = 12345;
  auto next = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  std::vector<std::pair<std::string, const Json*>> corpus;
  for (const auto& style : goldens()["styles"]) corpus.emplace_back(style.get<std::string>(), &context);
  for (const auto& golden : goldens()["templates"]) corpus.emplace_back(golden["template"].get<std::string>(), &data);
  static constexpr std::string_view kBytes = "{}%#-+|.()[]'\"\\ \n:,0a=~*\x80";
  for (int round = 0; round < 20; ++round) {
    for (const auto& [original, variables] : corpus) {
      if (original.empty()) continue;
      std::string source = original;
      for (uint64_t flips = 1 + next() % 2; flips > 0; --flips)
        source[next() % source.size()] = kBytes[next() % kBytes.size()];
      attempt(source, *variables);
      source = original;
      source[next() % source.size()] ^= static_cast<char>(1 << (next() % 8));
      attempt(source, *variables);
    }
  }
  EXPECT_GT(results, 1000u);
  EXPECT_GT(errors, 1000u);
}

TEST(ChatTemplate, OneTemplateServesSeveralThreads) {
  ChatTemplate compiled("{% for m in messages %}{{ 'x' ~ m.content|upper }}{% endfor %}");
  Json context = Json::parse(R"({"messages": [{"content": "a"}, {"content": "b"}]})");
  std::vector<std::string> outputs(4);
  std::vector<std::thread> threads;
  for (std::string& out : outputs) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) out = compiled.render(context);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& out : outputs) EXPECT_EQ(out, "xAxB");
}

TEST(ChatTemplate, AbsentTokensAreUndefined) {
  ChatTemplate compiled(
      "{{ bos_token is defined }}{{ tools is none }}{{ add_generation_prompt }}{{ enable_thinking }}");
  ChatPrompt prompt;
  prompt.extra["enable_thinking"] = false;
  EXPECT_EQ(compiled.render(prompt), "FalseTrueTrueFalse");
  prompt.bos_token = "<s>";
  EXPECT_EQ(compiled.render(prompt), "TrueTrueTrueFalse");
}

}  // namespace
}  // namespace pop
