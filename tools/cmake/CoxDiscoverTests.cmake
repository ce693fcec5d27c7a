# cox_discover_tests(target PREFIX text [LABELS labels...] [NO_GPU] [LEFT_OUT tag] [STAND_IN environment...])
# One ctest entry per TEST_CASE of a Catch2 program (2 or 3), listed after each link. Unlike Catch2's own script this one
# fails the build when the program cannot list its tests, and takes any title. Cases with the tag [gpu], and those of the
# contract on a CUDA backend, have the label gpu and run one at a time; with NO_GPU they are left out, as are those with
# the tag LEFT_OUT. Cases with the tag [alone] have threads that poll, and run while no other test does: beside one that
# needs the processors they take up to 50 times as long. With STAND_IN, those of the contract are listed once more, in an
# environment that names the libraries which stand in for the driver and NCCL; those on several devices twice, the second
# time without kernels of our own between them. A case that says "skipped: needs ..." is shown as skipped.
function(cox_discover_tests target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_GPU" "PREFIX;LEFT_OUT" "LABELS;STAND_IN")
  if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
    set(list_arguments "--list-tests --verbosity quiet")
    set(run_arguments "")
  else()
    set(list_arguments "--list-test-names-only")
    set(run_arguments "--warn NoTests")
  endif()
  set(output "${CMAKE_CURRENT_BINARY_DIR}/${target}_tests.cmake")
  add_custom_command(TARGET ${target} POST_BUILD
    BYPRODUCTS "${output}"
    COMMAND "${CMAKE_COMMAND}"
      -D "PROGRAM=$<TARGET_FILE:${target}>" -D "LAUNCHER=${COX_TEST_LAUNCHER}" -D "LIST_ARGUMENTS=${list_arguments}"
      -D "RUN_ARGUMENTS=${run_arguments}" -D "PREFIX=${arg_PREFIX}" -D "LABELS=${arg_LABELS}"
      -D "NO_GPU=${arg_NO_GPU}" -D "LEFT_OUT=${arg_LEFT_OUT}" -D "STAND_IN=${arg_STAND_IN}" -D "OUTPUT=${output}"
      -P "${PROJECT_SOURCE_DIR}/tools/cmake/ListTests.cmake"
    VERBATIM)

  set(include_file "${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake")
  file(CONFIGURE OUTPUT "${include_file}" @ONLY CONTENT [[
if(EXISTS "@output@")
  include("@output@")
else()
  add_test("@arg_PREFIX@: not built" "@target@_NOT_BUILT")
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${include_file}")
endfunction()
