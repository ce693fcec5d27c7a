#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/support/variable.hpp>

#include <coxswain/runtime/base/library_search.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using cox::detail::library_candidates;
using cox::detail::LibrarySearch;
using cox::detail::SearchRoots;
using cox::test::TemporaryFolder;
using cox::test::Variable;

namespace {

using Names = std::vector<std::string>;

const LibrarySearch search{"", {"libx.so.2", "libx.so.1"}, {"nvidia/cu13/lib", "nvidia/x/lib"}};

bool contains(const std::vector<std::filesystem::path>& paths, const std::filesystem::path& path) {
  return std::ranges::find(paths, path) != paths.end();
}

}  // namespace

TEST_CASE("A library that a setting names is not looked for elsewhere") {
  const LibrarySearch given{"/some/libx.so", search.names, search.wheel_folders};
  CHECK(library_candidates(given, {}) == Names{"/some/libx.so"});
}

TEST_CASE("A library is looked for where the loader does, then in toolkits, then in wheels, and only what is there") {
  const TemporaryFolder folder;
  const auto toolkit = folder.make_file("toolkit/lib64/libx.so.1");
  const auto target = folder.make_file("toolkit/targets/x86_64-linux/lib/libx.so.2");
  const auto wheel = folder.make_file("venv/lib/python3.12/site-packages/nvidia/x/lib/libx.so.1");
  folder.make_file("toolkit/lib64/liby.so.1");
  const SearchRoots roots{{folder.path() / "toolkit", folder.path() / "none"},
                          {folder.path() / "venv/lib/python3.12/site-packages"}};
  CHECK(library_candidates(search, roots) ==
        Names{"libx.so.2", "libx.so.1", toolkit.string(), target.string(), wheel.string()});
}

TEST_CASE("The roots of the search are those that the environment names and that are there") {
  const TemporaryFolder folder;
  const auto path = folder.path();
  folder.make_file("home/include/cuda.h");
  folder.make_file("bin-toolkit/bin/nvcc");
  folder.make_file("venv/lib/python3.9/site-packages/a.py");
  folder.make_file("conda/lib/python3.12/site-packages/a.py");
  folder.make_file("prefix/bin/python3");
  folder.make_file("prefix/lib64/python3.11/dist-packages/a.py");
  const std::string old_path = ::getenv("PATH");
  {
    const Variable home("CUDA_HOME", (path / "home").string());
    const Variable other("CUDA_PATH", (path / "not there").string());
    const Variable venv("VIRTUAL_ENV", (path / "venv").string());
    const Variable conda("CONDA_PREFIX", (path / "conda").string());
    ::setenv("PATH", ((path / "bin-toolkit/bin").string() + "::" + (path / "prefix/bin").string()).c_str(), 1);
    const SearchRoots roots = SearchRoots::of_process();
    ::setenv("PATH", old_path.c_str(), 1);
    REQUIRE(roots.toolkits.size() >= 2);
    CHECK(roots.toolkits[0] == path / "home");
    CHECK(roots.toolkits[1] == path / "bin-toolkit");
    CHECK_FALSE(contains(roots.toolkits, path / "not there"));
    REQUIRE(roots.site_packages.size() >= 3);
    CHECK(roots.site_packages[0] == path / "venv/lib/python3.9/site-packages");
    CHECK(roots.site_packages[1] == path / "conda/lib/python3.12/site-packages");
    CHECK(roots.site_packages[2] == path / "prefix/lib64/python3.11/dist-packages");
  }
}
