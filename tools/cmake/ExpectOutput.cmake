# cmake -D PROGRAM=FILE -D EXPECTED=FILE -P ExpectOutput.cmake    Fails unless the program exits with 0 and prints the text
# in EXPECTED. A program that skips ("skipped: needs ...") may print that instead.
execute_process(COMMAND "${PROGRAM}" RESULT_VARIABLE result OUTPUT_VARIABLE output)
message(STATUS "${output}")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "ended with '${result}'")
endif()
file(READ "${EXPECTED}" expected)
string(STRIP "${expected}" expected)
string(STRIP "${output}" output)
if(NOT output STREQUAL expected AND NOT output MATCHES "^skipped: needs")
  message(FATAL_ERROR "expected:\n${expected}")
endif()
