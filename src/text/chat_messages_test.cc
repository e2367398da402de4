// Goal: what is wrong with a client's messages is told with its place and as the client's mistake; what is right reaches the template.
#include "text/chat_messages.h"

#include "text/template_test_util.h"

namespace lathe::text {
namespace {

using config::Json;
using testing::json;

/// What render() says, of messages that must be refused as the client's.
std::string refused(const ChatTemplate& chat, std::string_view messages, std::string_view tools = "null") {
  const Json list = json(messages);
  const Json given = json(tools);
  const auto text = chat.render({.messages = &list, .tools = &given});
  if (text) return "rendered: " + text->text;
  EXPECT_EQ(text.error().code, Code::kInvalidArgument) << messages;
  return text.error().message;
}

TEST(ChatMessages, AMistakeHasItsPlaceAndIsTheClients) {
  const auto chat = ChatTemplate::load(std::string(LATHE_SOURCE_DIR) + "/data/builtin");
  ASSERT_TRUE(chat) << chat.error().message;
  const std::string good = R"([{"role":"user","content":"a"},)";
  const auto second = [&](const std::string& message) { return refused(*chat, good + message + "]"); };
  const auto call = [&](const std::string& of) { return second(R"({"role":"assistant","content":null,"tool_calls":)" + of + "}"); };
  const std::string at = "message 1: ";
  EXPECT_EQ(second("[]"), "message 1 must be an object, not an array");
  EXPECT_EQ(second(R"({"content":"x"})"), at + "'role' is missing, expected a string");
  EXPECT_EQ(second(R"({"role":3})"), at + "'role' is an integer, expected a string");
  EXPECT_EQ(second(R"({"role":"user","content":5})"), at + "'content' is an integer, expected a string or an array of parts");
  EXPECT_EQ(second(R"({"role":"user","content":["a",5]})"), at + "'content': part 1 must be an object, not an integer");
  EXPECT_EQ(second(R"({"role":"user","content":[{"type":"text","text":{}}]})"), at + "'content': part 0: 'text' is an object, expected a string");
  EXPECT_EQ(second(R"({"role":"user","content":[{"type":7}]})"), at + "'content': part 0: 'type' is an integer, expected a string");
  EXPECT_EQ(second(R"({"role":"assistant","reasoning_content":[]})"), at + "'reasoning_content' is an array, expected a string");
  EXPECT_EQ(second(R"({"role":"tool","tool_call_id":1,"content":"x"})"), at + "'tool_call_id' is an integer, expected a string");
  EXPECT_EQ(call("5"), at + "'tool_calls' is an integer, expected an array");
  EXPECT_EQ(call("[5]"), at + "tool call 0 must be an object, not an integer");
  EXPECT_EQ(call(R"([{"function":"f"}])"), at + "tool call 0: 'function' is a string, expected an object");
  EXPECT_EQ(call(R"([{"function":{"arguments":{}}}])"), at + "tool call 0: 'name' is missing, expected a string");
  EXPECT_EQ(call(R"([{"id":1,"function":{"name":"f"}}])"), at + "tool call 0: 'id' is an integer, expected a string");
  EXPECT_EQ(call(R"([{"name":"f"},{"function":{"name":"f","arguments":[1]}}])"),
            at + "tool call 1: 'arguments' is an array, expected an object or JSON text of one");
  for (const char* const broken : {R"("{broken")", R"("[1]")", R"("3")"}) {
    EXPECT_EQ(call(R"([{"name":"f"},{"function":{"name":"f","arguments":)" + std::string(broken) + "}}]"),
              at + "tool call 1: 'arguments' is no JSON object, which the chat template needs");
  }
  EXPECT_EQ(refused(*chat, "[]", "{}"), "tools must be an array, not an object");
  EXPECT_EQ(refused(*chat, "[]", "[{}, 4]"), "tool 1 must be an object, not an integer");
  EXPECT_EQ(refused(*chat, "[]", R"([{"type":"function","function":null}])"), "tool 0: 'function' is null, expected an object");
}

TEST(ChatMessages, WhatFailsOfItselfIsTheTemplatesFault) {
  const auto chat = ChatTemplate::parse("{% for m in messages %}{{ m.content.nonsense() }}{% endfor %}");
  ASSERT_TRUE(chat) << chat.error().message;
  const Json messages = json(R"([{"role":"user","content":"a","tool_calls":[{"name":"f","arguments":"{\"a\": 1}"}]}])");
  const auto text = chat->render({.messages = &messages});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kDataLoss) << text.error().message;
}

TEST(ChatMessages, NoArgumentsAreNone) {
  for (const char* const arguments : {R"({"name":"f"})", R"({"name":"f","arguments":null})", R"({"name":"f","arguments":""})"}) {
    Json message = json(R"({"role":"assistant","tool_calls":[]})");
    message.set("tool_calls", Json(Json::Array{json(arguments)}));
    EXPECT_TRUE(check_messages(Json(Json::Array{message})));
    const auto adapted = adapt_message(message, {});
    ASSERT_TRUE(adapted && *adapted) << arguments;
    EXPECT_EQ((*adapted)->find("tool_calls")->dump(), R"([{"name":"f","arguments":{}}])");
  }
}

TEST(ChatMessages, WhatHasItsFormIsLeftAlone) {
  const Json objects = json(R"({"role":"assistant","content":[{"type":"image"}],"tool_calls":[{"name":"f","arguments":{"a":1}}]})");
  EXPECT_FALSE(adapt_message(objects, {})->has_value());
  const Json texts = json(R"({"role":"assistant","content":"a","tool_calls":[{"name":"f","arguments":"{broken"}]})");
  EXPECT_FALSE(adapt_message(texts, {})->has_value()) << "what cannot be read stays";
  EXPECT_FALSE(adapt_message(texts, {.arguments = MessageForm::Arguments::kText, .content = MessageForm::Content::kText})->has_value());
}

}  // namespace
}  // namespace lathe::text
