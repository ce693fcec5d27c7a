# Installs this build into a folder of its own and builds and runs tests/install against it.
set(prefix "${CMAKE_CURRENT_BINARY_DIR}/install/prefix")
set(consumer "${CMAKE_CURRENT_BINARY_DIR}/install/consumer")

add_test(NAME "install: clean prefix" COMMAND "${CMAKE_COMMAND}" -E rm -rf "${prefix}" "${consumer}")
add_test(NAME "install: into the prefix"
  COMMAND "${CMAKE_COMMAND}" --install "${PROJECT_BINARY_DIR}" --prefix "${prefix}")
if(COX_BUILD_TOOLS)
  # Without the variables that would help it find its libraries elsewhere.
  add_test(NAME "install: cox runs where it is installed"
    COMMAND "${CMAKE_COMMAND}" -E env --unset=LD_LIBRARY_PATH "${prefix}/${CMAKE_INSTALL_BINDIR}/cox" --version)
  set_tests_properties("install: cox runs where it is installed" PROPERTIES FIXTURES_REQUIRED installed_tree TIMEOUT 60)
endif()
add_test(NAME "install: consumer finds the package, builds and runs"
  COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${CMAKE_CURRENT_SOURCE_DIR}/install" "${consumer}"
    --build-generator "${CMAKE_GENERATOR}"
    --build-options "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}"
      "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}" "-DCMAKE_BUILD_TYPE=Debug"
    --test-command "${consumer}/consumer")
add_test(NAME "install: a __global__ function of the consumer is launched"
  COMMAND sh -c "if [ -x '${consumer}/kernel_consumer' ]; then exec '${consumer}/kernel_consumer'; fi; echo 'skipped: needs nvcc'")
set_tests_properties("install: a __global__ function of the consumer is launched" PROPERTIES
  FIXTURES_REQUIRED consumer LABELS gpu SKIP_REGULAR_EXPRESSION "skipped: needs")
add_test(NAME "install: a consumer that hides its symbols runs" COMMAND "${consumer}/hidden_consumer")
set_tests_properties("install: a consumer that hides its symbols runs" PROPERTIES FIXTURES_REQUIRED consumer TIMEOUT 120)
if(BUILD_SHARED_LIBS)
  add_test(NAME "install: a consumer that hides its symbols has no copy of the library's state"
    COMMAND "${PROJECT_SOURCE_DIR}/tools/checks/shared_state" "${consumer}/hidden_consumer")
  set_tests_properties("install: a consumer that hides its symbols has no copy of the library's state" PROPERTIES
    FIXTURES_REQUIRED consumer)
endif()
set_tests_properties("install: clean prefix" PROPERTIES FIXTURES_SETUP clean_prefix)
set_tests_properties("install: into the prefix" PROPERTIES
  FIXTURES_REQUIRED clean_prefix FIXTURES_SETUP installed_tree TIMEOUT 120)
set_tests_properties("install: consumer finds the package, builds and runs" PROPERTIES
  FIXTURES_REQUIRED installed_tree FIXTURES_SETUP consumer TIMEOUT 600)

# The project of docs/tutorial.md, as a reader writes it: its CMake file and its first program.
set(tutorial "${CMAKE_CURRENT_BINARY_DIR}/install/tutorial")
file(READ "${PROJECT_SOURCE_DIR}/docs/tutorial.md" tutorial_page)
cox_take_block(cmake "${tutorial_page}" tutorial_project ignored)
cox_take_block(cpp "${tutorial_page}" tutorial_source tutorial_rest)
cox_take_block(text "${tutorial_rest}" tutorial_output ignored)
file(CONFIGURE OUTPUT "${tutorial}/CMakeLists.txt" CONTENT "@tutorial_project@\n" @ONLY)
file(CONFIGURE OUTPUT "${tutorial}/sum.cpp" CONTENT "@tutorial_source@\n" @ONLY)
file(CONFIGURE OUTPUT "${tutorial}/output.txt" CONTENT "@tutorial_output@\n" @ONLY)
add_test(NAME "install: the project of the tutorial builds and runs"
  COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${tutorial}" "${tutorial}/build"
    --build-generator "${CMAKE_GENERATOR}"
    --build-options "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}"
      "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}" "-DCMAKE_BUILD_TYPE=Debug"
    --test-command "${CMAKE_COMMAND}" -D "PROGRAM=${tutorial}/build/sum" -D "EXPECTED=${tutorial}/output.txt"
      -P "${PROJECT_SOURCE_DIR}/tools/cmake/ExpectOutput.cmake")
set_tests_properties("install: the project of the tutorial builds and runs" PROPERTIES
  FIXTURES_REQUIRED installed_tree TIMEOUT 600)
add_test(NAME "install: cox-train is built against the prefix and passes its tests"
  COMMAND "${CMAKE_CTEST_COMMAND}" --build-and-test "${PROJECT_SOURCE_DIR}/tools/train"
    "${CMAKE_CURRENT_BINARY_DIR}/install/train"
    --build-generator "${CMAKE_GENERATOR}"
    --build-options "-DCMAKE_PREFIX_PATH=${prefix}" "-DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}"
      "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}" "-DCMAKE_BUILD_TYPE=Release"
      "-DCMAKE_UNITY_BUILD=${COX_UNITY}" "-DCMAKE_UNITY_BUILD_BATCH_SIZE=6"
    --test-command "${CMAKE_CTEST_COMMAND}" --output-on-failure --parallel 2)
set_tests_properties("install: cox-train is built against the prefix and passes its tests" PROPERTIES
  FIXTURES_REQUIRED installed_tree PROCESSORS 2 TIMEOUT 1200)
