#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tools/cox/supervisor/fault_summary.hpp>

#include <cstddef>
#include <optional>
#include <string>

using cox::test::TemporaryFolder;
using cox::tools::fault_summary;
using cox::tools::memory_is_lost;
using cox::tools::text_of_report;

namespace {

// As a GPU fault is reported, with so many suspects.
std::string report_with(int suspects) {
  std::string text = R"({"name": "CUDA_ERROR_CONTAINED", "code": 721, "call": "event_query", "text": ")" +
                     std::string(static_cast<std::size_t>(suspects) * 40, 'x') + R"(", "suspects": [)";
  for (int i = 0; i < suspects; ++i)
    text += (i == 0 ? "" : ", ") + std::string(R"({"operation": "launch )") + std::to_string(i) +
            R"(", "place": "cuda:0", "site": "train.cpp:31"})";
  return text + "]}\n";
}

}  // namespace

TEST_CASE("A fault report is summarised, and shows whether the memory is lost") {
  const TemporaryFolder folder;
  const auto report = folder.make_file("report", report_with(2));
  CHECK(fault_summary(report) ==
        "CUDA_ERROR_CONTAINED (721) from event_query, first suspect launch 0 on cuda:0 at train.cpp:31");
  CHECK(memory_is_lost(report));
  CHECK(text_of_report(report, 10'000) == report_with(2));
  CHECK(fault_summary(folder.path() / "none") == std::nullopt);
  CHECK_FALSE(memory_is_lost(folder.path() / "none"));
  CHECK(text_of_report(folder.path() / "none", 10'000).empty());
}

TEST_CASE("Of a fault report that is too large, as many suspects as fit are taken") {
  const TemporaryFolder folder;
  constexpr std::size_t most = 4096;
  const auto whole = folder.make_file("whole", report_with(1000));
  const std::string text = text_of_report(whole, most);
  CHECK(text.size() <= most);
  CHECK(text.size() > most / 4);
  const auto cut = folder.make_file("cut", text);
  CHECK(fault_summary(cut) == fault_summary(whole));
  CHECK(memory_is_lost(cut));
  CHECK(text_of_report(folder.make_file("other", std::string(2 * most, 'x')), most).empty());
}
