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
set_tests_properties("install: clean prefix" PROPERTIES FIXTURES_SETUP clean_prefix)
set_tests_properties("install: into the prefix" PROPERTIES
  FIXTURES_REQUIRED clean_prefix FIXTURES_SETUP installed_tree TIMEOUT 120)
set_tests_properties("install: consumer finds the package, builds and runs" PROPERTIES
  FIXTURES_REQUIRED installed_tree FIXTURES_SETUP consumer TIMEOUT 600)
