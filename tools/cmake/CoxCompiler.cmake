# What holds for everything compiled here: the compiler's age, sanitizers, where programs go, ccache.

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "coxswain needs g++ 12 or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "coxswain needs clang 16 or newer; ${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}")
endif()

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Kind of build" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  find_program(COX_CCACHE ccache)
  mark_as_advanced(COX_CCACHE)
  if(COX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${COX_CCACHE}")
  endif()
endif()

if(BUILD_SHARED_LIBS)
  set(CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()

if(COX_SANITIZE)
  add_compile_options(-fsanitize=${COX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${COX_SANITIZE})
endif()
if(COX_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("SHELL:--param ggc-min-heapsize=524288")  # collecting garbage is a twelfth of a compilation
endif()
if(COX_STATIC_DEPENDENCIES)
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

# Put before a test's command line. g++ 12's ThreadSanitizer cannot map its shadow where the kernel randomises addresses
# over more than 28 bits, so its programs run without randomisation where that is permitted.
set(COX_TEST_LAUNCHER "")
if(COX_SANITIZE MATCHES "thread")
  find_program(COX_SETARCH setarch)
  mark_as_advanced(COX_SETARCH)
  if(COX_SETARCH)
    execute_process(COMMAND "${COX_SETARCH}" -R true RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
    if(refused EQUAL 0)
      set(COX_TEST_LAUNCHER "${COX_SETARCH}" -R)
    endif()
  endif()
endif()

# Language level and warnings of one of our own targets.
function(cox_configure_target target)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow)
  if(COX_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fno-semantic-interposition)  # inline as if it were not position independent
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      target_compile_options(${target} PRIVATE -Wno-restrict)  # false alarms on std::string, GCC bug 105329
    endif()
    # False alarms on std::optional, GCC bug 80635.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    if(COX_SANITIZE)
      target_compile_options(${target} PRIVATE -Wno-error=tsan)  # it marks fences, which are moodycamel's
    endif()
  else()
    # std::stable_sort of g++ 12's library uses what that library deprecates, and clang 19 says so. g++ checks our own.
    target_compile_options(${target} PRIVATE -Wno-deprecated-declarations)
  endif()
endfunction()

# Where COX_UNITY is set: a few sources of the target make one translation unit. Names that two of them have in anonymous
# namespaces then clash; a source for which that cannot be helped has the property SKIP_UNITY_BUILD_INCLUSION.
function(cox_compile_a_few_at_a_time target few)
  if(COX_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${few})
    # Sources that know nothing of each other, and one of them is none of the headers that g++ takes it for.
    target_compile_options(${target} PRIVATE -Wno-shadow $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# What is half of a build or more, the tests and what they alone test under sanitizers, is compiled for a short build:
# little is optimised, and the address sanitizer checks accesses by calls.
function(cox_compile_for_a_short_build target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  if(COX_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE "SHELL:--param asan-instrumentation-with-call-threshold=0")
  endif()
endfunction()

# Besides, for tests: without the checks of pointers before each access, which take a third of the time. The address
# sanitizer finds accesses through null and outside of objects, but neither wrong alignment nor a wrong dynamic type. The
# libraries' own sources have all checks; of a function in a header that both use, the linker may take the tests' copy.
function(cox_compile_without_pointer_checks target)
  if(COX_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,vptr,object-size)
  endif()
endfunction()
