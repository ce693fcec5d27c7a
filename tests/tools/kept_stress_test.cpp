#include <coxswain/tools/cox/stress/kept_stress.hpp>

#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/tools/command.hpp>
#include <coxswain/tests/tools/shell.hpp>

#include <string>
#include <system_error>

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Matches;
using namespace cox::stress;
using cox::test::TemporaryFolder;
using cox::tools::Command;
using cox::tools::Shell;

TEST_CASE("A stress of kept sets kills its processes, and finds each set in its reported state") {
  const Shell stress = Shell::run("$COX stress --kept 25 --devices host:2 --seed 5");
  CAPTURE(stress.output);
  CHECK(stress.code == 0);
  CHECK_THAT(stress.output, ContainsSubstring("kept sets: 26 processes, 25 of them killed; ") &&
                                ContainsSubstring(" 0 corrupt; 0 wrong\nok\n"));
  CHECK_THAT(stress.output, !ContainsSubstring("states: 0 whole"));
}

TEST_CASE("A stress of kept sets has its processes crash and end by themselves, too, and runs with a standby") {
  const Shell stress =
      Shell::run("$COX stress --kept 12 --devices host:2 --fault kill=0.3,crash=0.4 --standby --seed 6");
  CAPTURE(stress.output);
  CHECK(stress.code == 0);
  CHECK_THAT(stress.output, ContainsSubstring(" crashed; ") && ContainsSubstring("0 wrong\nok\n"));
}

TEST_CASE("A stress of kept sets finds writes after the commit") {
  const Shell stress = Shell::run("$COX stress --kept 10 --devices host:2 --fault kill=0 --kept-flaw --seed 7");
  CAPTURE(stress.output);
  CHECK(stress.code == 1);
  CHECK_THAT(stress.output, ContainsSubstring("the first wrong one: ") && ContainsSubstring("failed\n"));
}

TEST_CASE("Arguments that a stress of kept sets cannot have are refused") {
  for (const std::string argument :
       {"--fault throw=0.1", "--fault gpu", "--fault kill=0.6,crash=0.6", "--seconds 3", "--mix submit=1"})
    CHECK(Shell::run("$COX stress --kept 3 " + argument).code == 2);
  CHECK(static_cast<int>(Command::run({"stress", "--kept", "0"}).code) == 2);
}

TEST_CASE("A stress of kept sets does not start where the disk is full") {
  const TemporaryFolder folder;
  // A full file system of its own, where users may mount one in a namespace of theirs.
  const Shell stress =
      Shell::run("cd '" + folder.path().string() +
                 "' && unshare --user --map-root-user --mount /bin/sh -c 'mount -t tmpfs -o size=16k none "
                 "\"$PWD\" && cd \"$PWD\" && echo mounted && head -c 16k /dev/zero > full && TMPDIR=$PWD "
                 "exec \"$0\" stress --kept 1 --devices host:1' \"$COX\"");
  CAPTURE(stress.output);
  if (stress.output.find("mounted") == std::string::npos) {
    WARN("no file system can be mounted here: " + stress.output);
    return;
  }
  CHECK(stress.code == 1);
  CHECK_THAT(stress.output, ContainsSubstring("cox stress: ") && ContainsSubstring("No space left on device\n"));
}

TEST_CASE("The book of a stress of kept sets is shared, and has the first wrong state") {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "book";
  const MappedKeptBook book(path, MappedKeptBook::Open::New);
  {
    const MappedKeptBook other(path, MappedKeptBook::Open::Existing);
    other->whole = 3;
    other->add_wrong("first");
    other->add_wrong("second");
  }
  CHECK(book->whole == 3);
  CHECK(book->wrong == 2);
  CHECK(std::string(book->first_wrong.data()) == "first");
  CHECK_THROWS_AS(MappedKeptBook(folder.path() / "none", MappedKeptBook::Open::Existing), std::system_error);
}
