// Rows that a model cannot be judged by are refused, with file, set, row and value in the message.
#include "evaluate/eval_sets.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace lathe::evaluate {
namespace {

const models::ModelInfo& model() {
  static const models::ModelInfo kInfo = [] {
    models::ModelInfo info;
    info.vocabulary = 100, info.has_vision = true, info.image_token = 90;
    return info;
  }();
  return kInfo;
}

class EvalSetsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/lathe_eval_sets_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Message of reading and checking a folder of one set; empty if all is well.
  std::string message(const std::string& set, const std::string& lines, const std::string& more = "") {
    EXPECT_TRUE(base::write_file(folder_ + "/index.json", R"({"bytes_per_token_of_evaluate":3.5,"sets":{")" + set + "\":{}}" + more + "}"));
    EXPECT_TRUE(base::write_file(folder_ + "/" + set + ".jsonl", lines));
    const auto sets = read_eval_sets(folder_, {});
    if (!sets) return says(sets.error());
    const auto checked = check_eval_sets(*sets, model());
    return checked ? "" : says(checked.error());
  }

 private:
  static std::string says(const Error& error) {
    EXPECT_EQ(error.code, Code::kDataLoss) << error.message;
    return error.message;
  }
  std::string folder_;
};

constexpr const char* kGood = R"({"prompt":[1,2],"answer":[3,4],"reasoning":1})";

TEST_F(EvalSetsTest, GoodRowsPass) {
  EXPECT_EQ(message("add", kGood), "");
  EXPECT_EQ(message("look", R"({"prompt":[1,90,90,2,90],"answer":[3],"reasoning":0,"images":["a.png","b.png"]})"), "");
  EXPECT_EQ(message("heldout", R"({"ids":[1,99]})"), "");
  EXPECT_EQ(message("draft_prompts", R"({"kind":"text","prompt":[1],"greedy_fp8":[2]})"), "");
  EXPECT_EQ(message("add", kGood, R"(,"first_id_never_chosen":5,"stop_ids":[4])"), "");
}

TEST_F(EvalSetsTest, MessagesNameFileSetRowAndValue) {
  const std::string said = message("add", std::string(kGood) + "\n" + R"({"prompt":[1],"answer":[3,100],"reasoning":0})");
  for (const char* part : {"add.jsonl line 2", "set 'add', row 1", "'answer'", "100", "vocabulary of 100"}) {
    EXPECT_NE(said.find(part), std::string::npos) << part << " is not in: " << said;
  }
}

TEST_F(EvalSetsTest, BadRowsAreRefused) {
  struct Bad {
    const char *set, *row, *said;
  };
  for (const Bad& bad :
       {Bad{"add", R"({"prompt":[100],"answer":[3],"reasoning":0})", "'prompt' holds the id 100"},
        Bad{"add", R"({"prompt":[-1],"answer":[3],"reasoning":0})", "'prompt' holds -1"},
        Bad{"add", R"({"prompt":[1],"answer":[3],"reasoning":1})", "expected something to score"},
        Bad{"add", R"({"prompt":[1],"answer":[3,90],"reasoning":1})", "image placeholder 90"},
        Bad{"add", R"({"prompt":[1],"answer":[3],"reasoning":"0"})", "'reasoning'"},
        Bad{"look", R"({"prompt":[1,90],"answer":[3],"reasoning":0})", "1 runs of the image placeholder 90, 'images' names 0"},
        Bad{"look", R"({"prompt":[1,90],"answer":[3],"reasoning":0,"images":["a","b"]})", "1 runs of the image placeholder 90, 'images' names 2"},
        Bad{"look", R"({"prompt":[1],"answer":[3],"reasoning":0,"images":["a"]})", "0 runs of the image placeholder 90, 'images' names 1"},
        Bad{"heldout", R"({"ids":[1,100]})", "'ids' holds the id 100"}, Bad{"heldout", R"({"ids":[1,90]})", "image placeholder 90"},
        Bad{"heldout", R"({"ids":[1]})", "two"},
        Bad{"draft_prompts", R"({"kind":"text","prompt":[1],"greedy_fp8":[200]})", "'greedy_fp8' holds the id 200"},
        Bad{"draft_prompts", R"({"kind":"text","prompt":[],"greedy_fp8":[2]})", "'prompt' has no ids"},
        Bad{"draft_prompts", R"({"kind":"text","prompt":[90],"greedy_fp8":[2]})", "image placeholder 90"}}) {
    const std::string said = message(bad.set, bad.row);
    EXPECT_NE(said.find(bad.said), std::string::npos) << bad.row << ": " << said;
    EXPECT_NE(said.find(std::string("set '") + bad.set + "', row 0"), std::string::npos) << said;
  }
}

TEST_F(EvalSetsTest, IdsOfTheIndex) {
  for (const char* never : {"-1", "0", "1.5", "\"3580\"", "4294967296", "101"}) {
    const std::string said = message("add", kGood, std::string(",\"first_id_never_chosen\":") + never);
    EXPECT_NE(said.find("index.json: 'first_id_never_chosen' is "), std::string::npos) << never << ": " << said;
  }
  EXPECT_NE(message("add", kGood, R"(,"stop_ids":[100])").find("'stop_ids' holds the id 100"), std::string::npos);
  EXPECT_NE(message("add", kGood, R"(,"stop_ids":[-7])").find("'stop_ids' holds -7"), std::string::npos);
  // What is scored must be chosen; what is given need not.
  EXPECT_NE(message("add", kGood, R"(,"first_id_never_chosen":4)").find("'answer' holds the id 4, which no model chooses"), std::string::npos);
  EXPECT_EQ(message("add", R"({"prompt":[1,50],"answer":[60,3],"reasoning":1})", R"(,"first_id_never_chosen":4)"), "");
}

}  // namespace
}  // namespace lathe::evaluate
