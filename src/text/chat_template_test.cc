// The model's own template, five that behave like public families, and what the façade does around them.
#include "text/chat_template.h"

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "text/template_test_util.h"
#include "text/tokenizer.h"

namespace lathe::text {
namespace {

using config::Json;
using testing::json;

const std::string kBuiltin = std::string(LATHE_SOURCE_DIR) + "/data/builtin";
const std::string kTemplates = std::string(LATHE_SOURCE_DIR) + "/tests/oracle/templates";
const std::string kHead = "[gMASK]<sop><|system|>Reasoning Effort: Max";

ChatTemplate builtin() {
  auto loaded = ChatTemplate::load(kBuiltin);
  EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().message);
  return *loaded;
}

ChatTemplate parse(std::string_view source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message);
  return *parsed;
}

struct Options {
  std::string_view tools = "null";
  bool open = false;
  std::string_view variables = "{}";
};

std::string render(const ChatTemplate& chat, std::string_view messages, Options options = {}) {
  const Json list = json(messages);
  const Json tools = json(options.tools);
  RenderInput input{.messages = &list, .tools = &tools, .add_generation_prompt = options.open};
  input.variables = json(options.variables).as_object();
  const auto text = chat.render(input);
  return text ? text->text : "ERROR: " + text.error().message;
}

TEST(ChatTemplate, ReleasedRenders) {
  const ChatTemplate chat = builtin();
  EXPECT_EQ(
      render(
          chat,
          R"([{"role":"user","content":"hi"},{"role":"assistant","content":"hello there"},{"role":"user","content":"bye"},{"role":"assistant","content":"see you"}])"),
      kHead + "<|user|>hi<|assistant|><think></think>hello there<|user|>bye<|assistant|><think></think>see you");
  EXPECT_EQ(render(chat, R"([{"role":"user","content":"2+2?"},{"role":"assistant","reasoning_content":"add them","content":"4"}])"),
            kHead + "<|user|>2+2?<|assistant|><think>add them</think>4");
  const char* weather = R"([{"role":"user","content":"weather?"},
    {"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"get_weather","arguments":{"city":"Paris"}}}]},
    {"role":"tool","tool_call_id":"a","content":"sunny"},{"role":"assistant","content":"It is sunny."}])";
  EXPECT_EQ(render(chat, weather),
            kHead +
                "<|user|>weather?<|assistant|><think></think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"
                "<|observation|><tool_response>sunny</tool_response><|assistant|><think></think>It is sunny.");
  EXPECT_EQ(
      render(
          chat,
          R"([{"role":"user","content":"hi"},{"role":"assistant","content":"hello"},{"role":"system","content":"new rule"},{"role":"user","content":"ok"},{"role":"assistant","content":"done"}])"),
      kHead + "<|user|>hi<|assistant|><think></think>hello<|system|>new rule<|user|>ok<|assistant|><think></think>done");
  EXPECT_EQ(render(chat, R"([{"role":"user","content":[{"type":"image"},{"type":"text","text":"c"},{"type":"video_url"}]}])", {.open = true}),
            kHead + "<|user|><|begin_of_image|><|image|><|end_of_image|>c<|begin_of_video|><|video|><|end_of_video|><|assistant|><think>");
}

TEST(ChatTemplate, EffortsAndReasoning) {
  const ChatTemplate chat = builtin();
  const char* user = R"([{"role":"user","content":"c"}])";
  const auto head = [](const char* effort) {
    return std::string("[gMASK]<sop><|system|>Reasoning Effort: ") + effort + "<|user|>c<|assistant|><think>";
  };
  EXPECT_EQ(render(chat, user, {.open = true, .variables = R"({"reasoning_effort":"low"})"}), head("Low"));
  EXPECT_EQ(render(chat, user, {.open = true, .variables = R"({"reasoning_effort":"high"})"}), head("High"));
  for (const char* other :
       {R"({"reasoning_effort":"max"})", R"({"reasoning_effort":"medium"})", R"({"reasoning_effort":null})", R"({"enable_thinking":false})", "{}"}) {
    EXPECT_EQ(render(chat, user, {.open = true, .variables = other}), head("Max")) << other;
  }
  const char* past = R"([{"role":"user","content":"a"},{"role":"assistant","reasoning_content":" one ","content":"b"},{"role":"user","content":"c"},
    {"role":"assistant","content":"<think>two</think>\nd","tool_calls":[]}])";
  EXPECT_EQ(render(chat, past), kHead + "<|user|>a<|assistant|><think>one</think>b<|user|>c<|assistant|><think>two</think>d");
  EXPECT_EQ(render(chat, past, {.variables = R"({"clear_thinking":true})"}),
            kHead + "<|user|>a<|assistant|><think></think>b<|user|>c<|assistant|><think>two</think>d");
}

TEST(ChatTemplate, ToolsAndResults) {
  const ChatTemplate chat = builtin();
  const char* tools =
      R"([{"type":"function","function":{"name":"f","strict":true,"parameters":{"é":1}}},{"type":"function","function":{"name":"g","defer_loading":true}}])";
  const std::string text = render(chat, R"([{"role":"user","content":"q"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{\"n\": 1, \"s\": \"x\", \"o\": {\"é\": null}}"}},{"id":"b","function":{"name":"g","arguments":""}}]},
    {"role":"tool","tool_call_id":"b","content":"B"},{"role":"tool","tool_call_id":"a","content":[{"type":"tool_reference","name":"g"}]}])",
                                  {.tools = tools, .open = true});
  EXPECT_NE(text.find("<tools>\n{\"name\": \"f\", \"parameters\": {\"é\": 1}}\n</tools>"), std::string::npos) << text;
  EXPECT_NE(text.find("<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>s</arg_key><arg_value>x</arg_value><arg_key>o</"
                      "arg_key><arg_value>{\"é\": null}</arg_value></tool_call>"
                      "<tool_call>g</tool_call><|observation|><tool_response><tools>\n{\"name\": "
                      "\"g\"}\n</tools></tool_response><tool_response>B</tool_response><|assistant|><think>"),
            std::string::npos)
      << text;
}

/// One <|image|> a picture: its copies are made when the picture's size is known.
std::string one_image_token(std::string text) {
  for (size_t at; (at = text.find("<|image|><|image|>")) != std::string::npos;) text.erase(at, 9);
  return text;
}

/// The content of a user's turn: a string, or a list when it begins with pictures.
Json content_of(std::string text) {
  const std::string picture = "<|begin_of_image|><|image|><|end_of_image|>";
  Json::Array parts;
  for (; text.starts_with(picture); text.erase(0, picture.size())) parts.push_back(json(R"({"type": "image"})"));
  if (parts.empty()) return {text};
  parts.push_back(json(R"({"type": "text"})"));
  parts.back().set("text", text);
  return {parts};
}

/// The JSON lines of the tools in a prompt, or null.
Json tools_of(const std::string& prompt) {
  Json::Array tools;
  const size_t end = prompt.find("<|user|>");
  for (size_t at = prompt.find("\n{\"name\""); at < end; at = prompt.find("\n{\"name\"", at + 1)) {
    tools.push_back(json(prompt.substr(at + 1, prompt.find('\n', at + 1) - at - 1)));
  }
  return tools.empty() ? Json() : Json(tools);
}

/// Prompts of the trained model, text and tokens, made by the template's and the tokenizer's first implementations.
TEST(ChatTemplate, GoldenPrompts) {
  const ChatTemplate chat = builtin();
  const auto tokenizer = Tokenizer::load(kBuiltin + "/tokenizer.json");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto golden = config::read_json_file(std::string(LATHE_SOURCE_DIR) + "/data/golden/tiny/golden.json");
  ASSERT_TRUE(golden) << golden.error().message;
  size_t compared = 0;
  for (const Json& entry : golden->as_array()) {
    if (!entry.find("prompt_text")->is_string()) continue;
    const std::string want = one_image_token(entry.find("prompt_text")->as_string());
    if (want.find("<|user|>") == std::string::npos) continue;  // raw text
    const size_t user = want.find("<|user|>") + 8;
    Json message = json(R"({"role": "user"})");
    message.set("content", content_of(want.substr(user, want.find("<|assistant|>", user) - user)));
    const Json messages(Json::Array{message});
    const Json tools = tools_of(want);
    RenderInput input{.messages = &messages, .tools = &tools};
    const size_t effort = want.find("Effort: ") + 8;
    input.variables.emplace_back("reasoning_effort", want.substr(effort, want.find('<', effort) - effort));
    const auto text = chat.render(input);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->text, want);

    const auto ids = (*tokenizer)->encode_marked(*text);
    ASSERT_TRUE(ids) << ids.error().message;
    std::vector<TokenId> want_ids;
    for (const Json& id : entry.find("ids")->as_array()) {
      constexpr TokenId kImage = 3578;
      const auto value = static_cast<TokenId>(id.as_int());
      if (value != kImage || want_ids.back() != kImage) want_ids.push_back(value);
    }
    EXPECT_EQ(*ids, want_ids) << entry.find("name")->as_string();
    ++compared;
  }
  EXPECT_EQ(compared, 15u);
}

TEST(ChatTemplate, UserTextIsNeverLiteral) {
  const ChatTemplate chat = builtin();
  const Json messages =
      json(R"([{"role":"system","content":"<|system|>s"},{"role":"user","content":[{"type":"image"},{"type":"text","text":"<|user|>"}]},
    {"role":"assistant","content":" <|assistant|>x ","reasoning_content":"</think>","tool_calls":[{"id":"1","function":{"name":"<n>","arguments":{"<k>":"<|v|>","o":{"<|w|>":1}}}}]},
    {"role":"tool","tool_call_id":"1","content":"</tool_response>"}])");
  const auto text = chat.render({.messages = &messages});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(
      testing::show(*text),
      kHead +
          "<|system|>«<|system|>s»<|user|><|begin_of_image|><|image|><|end_of_image|>«<|user|>»<|assistant|><think>«</think>»</think>«<|assistant|>x»"
          "<tool_call>«<n>»<arg_key>«<k>»</arg_key><arg_value>«<|v|>»</arg_value><arg_key>«o»</arg_key><arg_value>«{\"<|w|>\": "
          "1}»</arg_value></tool_call>"
          "<|observation|><tool_response>«</tool_response>»</tool_response><|assistant|><think>");
}

std::string template_file(const std::string& name) {
  if (name == "builtin") return kBuiltin + "/chat_template.jinja";
  return kTemplates + "/" + name;
}

/// What @huggingface/jinja rendered for the model's template and the five others (tests/oracle/template_oracle.mjs --record).
TEST(ChatTemplate, RecordedRenders) {
  const auto cases = config::read_json_file(kTemplates + "/recorded.json");
  ASSERT_TRUE(cases) << cases.error().message;
  EXPECT_GE(cases->as_array().size(), 250u);
  for (const Json& entry : cases->as_array()) {
    std::string source;
    if (const Json* inside = entry.find("source")) {
      source = inside->as_string();
    } else {
      const std::string& name = entry.find("template")->as_string();
      const auto text = base::read_file(template_file(name), 1 << 20);
      ASSERT_TRUE(text) << text.error().message;
      source = *text;
    }
    const auto got = render_template(source, *entry.find("context"), entry.find("now")->as_int());
    const Json& want = *entry.find("expect");
    const std::string& name = entry.find("name")->as_string();
    if (const Json* text = want.find("text")) {
      EXPECT_EQ(got ? got->text : got.error().message, text->as_string()) << name;
    } else {
      ASSERT_FALSE(got) << name << ": " << got->text;
      EXPECT_TRUE(got.error().message.ends_with(": " + want.find("error")->as_string())) << name << ": " << got.error().message;
    }
  }
}

TEST(ChatTemplate, ReasoningEfforts) {
  const ReasoningEfforts model = builtin().reasoning_efforts();
  EXPECT_EQ(model.distinct, (std::vector<std::string>{"low", "high"}));
  EXPECT_EQ(model.fallback, "max");
  EXPECT_EQ(model.unset, "max");
  EXPECT_TRUE(model.supports("max") && model.supports("low") && !model.supports("medium") && !model.supports("none"));

  const auto source = base::read_file(kTemplates + "/glm_every_branch.jinja", 1 << 20);
  ASSERT_TRUE(source);
  const ReasoningEfforts later = parse(*source).reasoning_efforts();
  EXPECT_EQ(later.distinct, (std::vector<std::string>{"none", "low", "high"}));
  EXPECT_EQ(later.fallback, "max");

  EXPECT_TRUE(parse("{{ messages[0].content }}").reasoning_efforts().distinct.empty());
  const ReasoningEfforts echo = parse("Effort {{ reasoning_effort | default('medium') }} {{ messages[0].content }}").reasoning_efforts();
  EXPECT_TRUE(echo.echoes && echo.supports("anything"));
  const ReasoningEfforts strict =
      parse("{% if reasoning_effort is defined and reasoning_effort not in ['low', 'high'] %}{{ raise_exception('no') }}{% endif %}x")
          .reasoning_efforts();
  EXPECT_EQ(strict.distinct, (std::vector<std::string>{"low", "high"}));
}

TEST(ChatTemplate, DependsOn) {
  EXPECT_TRUE(builtin().depends_on("clear_thinking", Json(true), Json(false)));
  EXPECT_FALSE(builtin().depends_on("enable_thinking", Json(true), Json(false)));
}

TEST(ChatTemplate, AdaptsToWhatTheTemplateTakes) {
  const char* calls_as_object = R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"k":"é"}}}]}])";
  const char* calls_as_text =
      R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\"k\": \"é\"}"}}]}])";

  const ChatTemplate texts = parse(
      "{% for m in messages %}{{ '[' + m.content + ']' }}{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }}{% endfor %}{% "
      "endfor %}");
  EXPECT_FALSE(texts.takes_content_parts());
  EXPECT_FALSE(texts.takes_argument_objects());
  EXPECT_EQ(render(texts, calls_as_object), "[a\nb][]f{\"k\": \"é\"}");
  EXPECT_EQ(render(texts, calls_as_text), "[a\nb][]f{\"k\": \"é\"}");
  EXPECT_EQ(render(texts, R"([{"role":"user","content":[{"type":"image"}]}])"),
            "ERROR: message 0: the chat template takes text only, not a part of type 'image'");

  const ChatTemplate objects = parse(
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}<{{ p.text }}>{% endfor %}{% endif %}"
      "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}");
  EXPECT_TRUE(objects.takes_content_parts());
  EXPECT_TRUE(objects.takes_argument_objects());
  EXPECT_EQ(render(objects, calls_as_object), "<a><b>{\"k\": \"é\"}");
  EXPECT_EQ(render(objects, calls_as_text), "a\nb{\"k\": \"é\"}");
  // What is no JSON object stays as it was written.
  EXPECT_EQ(render(objects, R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{broken"}}]}])"), "\"{broken\"");
  EXPECT_TRUE(builtin().takes_argument_objects());
  EXPECT_TRUE(builtin().takes_content_parts());
}

TEST(ChatTemplate, LoadsFromAFolder) {
  const std::string folder = ::testing::TempDir() + "/lathe_chat_template";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& text) { std::ofstream(folder + "/" + name) << text; };
  auto loaded = ChatTemplate::load(folder);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kNotFound);

  write("tokenizer_config.json",
        R"({"bos_token": "<s>", "chat_template": [{"name": "default", "template": "{{ bos_token }}D"}, {"name": "tool_use", "template": "T"}]})");
  loaded = ChatTemplate::load(folder);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(render(*loaded, "[]"), "<s>D");
  EXPECT_EQ(render(*loaded, "[]", {.tools = "[{}]"}), "T");

  write("tokenizer_config.json", R"({"chat_template": "one {{ messages | length }}"})");
  loaded = ChatTemplate::load(folder);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(render(*loaded, R"([{"role":"user"}])"), "one 1");

  write("chat_template.jinja", "file\n");
  loaded = ChatTemplate::load(folder);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(render(*loaded, "[]"), "file");

  write("chat_template.jinja", "\n{{ 1 +");
  loaded = ChatTemplate::load(folder);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().message, folder + "/chat_template.jinja: chat template line 2: the tag is never closed by '}}'");

  // What fails while it runs is the file's fault, unless the template itself refuses its input.
  const config::Json messages(config::Json::Array{});
  for (const auto& [source, code, words] : {std::tuple{"{{ foo.bar }}", Code::kDataLoss, "/chat_template.jinja: chat template line 1: "},
                                            std::tuple{"\n{{ 1 / 0 }}", Code::kDataLoss, "/chat_template.jinja: chat template line 2: "},
                                            std::tuple{"{% for i in range(0, 1, 0) %}{% endfor %}", Code::kDataLoss, "/chat_template.jinja: "},
                                            std::tuple{"{{ raise_exception('not so') }}", Code::kInvalidArgument, "line 1: not so"},
                                            std::tuple{"{{ raise_exception() }}", Code::kInvalidArgument, "refuses this input"}}) {
    write("chat_template.jinja", source);
    loaded = ChatTemplate::load(folder);
    ASSERT_TRUE(loaded) << loaded.error().message;
    const auto text = loaded->render({.messages = &messages});
    ASSERT_FALSE(text) << source;
    EXPECT_EQ(text.error().code, code) << source;
    EXPECT_NE(text.error().message.find(words), std::string::npos) << text.error().message;
  }
  std::filesystem::remove_all(folder);
}

TEST(ChatTemplate, WrongInputIsAnError) {
  const ChatTemplate chat = builtin();
  EXPECT_EQ(render(chat, "{}"), "ERROR: messages must be an array, not an object");
  EXPECT_EQ(render(chat, "[3]"), "ERROR: message 0 must be an object, not an integer");
  EXPECT_EQ(render(chat, R"([{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{broken"}}]}])"),
            "ERROR: message 0: tool call 0: 'arguments' is no JSON object, which the chat template needs");
}

/// A long conversation with many runs of tools: work grows with its square in this template, but must stay far below the limit.
TEST(ChatTemplate, LongConversation) {
  const ChatTemplate chat = builtin();
  Json::Array messages;
  for (int i = 0; i < 500; ++i) {
    const std::string id = std::to_string(i);
    messages.push_back(json(R"({"role":"user","content":"question"})"));
    messages.push_back(
        json(R"({"role":"assistant","content":"","tool_calls":[{"id":")" + id + R"(","function":{"name":"f","arguments":{"a":"b"}}}]})"));
    messages.push_back(json(R"({"role":"tool","content":"result","tool_call_id":")" + id + "\"}"));
  }
  messages.push_back(json(R"({"role":"user","content":")" + std::string(1 << 20, 'x') + "\"}"));
  const Json list(std::move(messages));
  const auto text = chat.render({.messages = &list});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_GT(text->text.size(), size_t{1} << 20);
}

}  // namespace
}  // namespace lathe::text
