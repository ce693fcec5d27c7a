#include <coxswain/tests/support/catch.hpp>

#include <coxswain/servers/cuda/compile/compilation_report.hpp>

#include <algorithm>
#include <string>

using cox::detail::compilation_report;

TEST_CASE("A report of a compilation has the log and the lines of the source that it names, with their neighbours") {
  const std::string source = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
  const std::string log =
      "k.cu(1): warning #177-D: unused\n\n"
      "k.cu(8): error: identifier \"x\" is undefined\n"
      "    eight\n"
      "    ^\n"
      "other.h(3): error: not of the source\n";
  CHECK(compilation_report(log, source, "k.cu") ==
        "[Compilation Error]\n"
        " k.cu(1): warning #177-D: unused\n"
        " k.cu(8): error: identifier \"x\" is undefined\n"
        "     eight\n"
        "     ^\n"
        " other.h(3): error: not of the source\n"
        "[Source]\n"
        ">     1 | one\n"
        "      2 | two\n"
        "      3 | three\n"
        "    ...\n"
        "      6 | six\n"
        "      7 | seven\n"
        ">     8 | eight\n"
        "      9 | nine\n"
        "     10 | ten");
}

TEST_CASE("A report without lines of the source is the log alone") {
  CHECK(compilation_report("nvrtc: error: no such option", "one\n", "k.cu") ==
        "[Compilation Error]\n nvrtc: error: no such option");
  CHECK(compilation_report("k.cu(7): error: beyond", "one\n", "k.cu") ==
        "[Compilation Error]\n k.cu(7): error: beyond");
  CHECK(compilation_report("k.cu(): error", "one\n", "k.cu") == "[Compilation Error]\n k.cu(): error");
}

TEST_CASE("A long log is cut, and so is what it names of the source") {
  std::string source;
  std::string log;
  for (int i = 1; i <= 10'000; ++i) {
    source += "line\n";
    log += "k.cu(" + std::to_string(i) + "): error\n";
  }
  const std::string report = compilation_report(log, source, "k.cu");
  CHECK(std::ranges::count(report, '\n') < 320);
  CHECK_THAT(report, Catch::Matchers::ContainsSubstring("\n ...\n[Source]\n"));
}
