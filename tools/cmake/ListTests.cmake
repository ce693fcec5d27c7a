# Writes OUTPUT, ctest's list of the test cases of PROGRAM. Run after each link; see CoxDiscoverTests.cmake.
separate_arguments(LIST_ARGUMENTS)
execute_process(COMMAND ${LAUNCHER} "${PROGRAM}" ${LIST_ARGUMENTS}
  OUTPUT_VARIABLE names ERROR_VARIABLE errors RESULT_VARIABLE result TIMEOUT 60)
string(STRIP "${names}" names)
# Those that need a GPU: by their tag, and those of the contract by the name of the backend.
execute_process(COMMAND ${LAUNCHER} "${PROGRAM}" ${LIST_ARGUMENTS} "[gpu]"
  OUTPUT_VARIABLE gpu_names ERROR_VARIABLE ignored RESULT_VARIABLE ignored TIMEOUT 60)
string(REGEX REPLACE "[ \t\r]*\n[ \t]*" "\n" gpu_names "\n${gpu_names}\n")
if(names STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} lists no tests (it ended with '${result}'):\n${errors}")
endif()

set(command "")
foreach(word IN LISTS LAUNCHER PROGRAM)
  string(APPEND command " [==[${word}]==]")
endforeach()
set(script "")
function(add_entry entry entry_properties)  # labels...
  string(APPEND script "add_test([==[${entry}]==] ${arguments})\n"
    "set_tests_properties([==[${entry}]==] PROPERTIES ${entry_properties} LABELS [==[${ARGN}]==])\n")
  set(script "${script}" PARENT_SCOPE)
endfunction()
string(APPEND names "\n")
while(NOT names STREQUAL "")  # line by line: a CMake list would break at semicolons and brackets in titles
  string(FIND "${names}" "\n" end)
  string(SUBSTRING "${names}" 0 ${end} name)
  math(EXPR next "${end} + 1")
  string(SUBSTRING "${names}" ${next} -1 names)
  string(STRIP "${name}" name)
  if(NOT name STREQUAL "")
    string(REGEX REPLACE "([][,\\\\])" "\\\\\\1" pattern "${name}")
    set(arguments "${command} [==[${pattern}]==] ${RUN_ARGUMENTS}")
    set(properties "TIMEOUT 300 SKIP_REGULAR_EXPRESSION [==[skipped: needs]==]")
    string(FIND "${gpu_names}" "\n${name}\n" tagged)
    set(of_contract FALSE)
    if(name MATCHES " - Cuda[A-Za-z]*$")
      set(of_contract TRUE)
    endif()
    if(tagged LESS 0 AND NOT of_contract)
      add_entry("${PREFIX}: ${name}" "${properties}" ${LABELS})
    elseif(NOT NO_GPU)
      add_entry("${PREFIX}: ${name}" "${properties} RESOURCE_LOCK gpu" ${LABELS} gpu)
    endif()
    if(of_contract AND STAND_IN)
      add_entry("${PREFIX} without a GPU: ${name}" "${properties} ENVIRONMENT [==[${STAND_IN}]==]" ${LABELS})
      if(name MATCHES " - CudaFleet$")  # several devices: small collectives, too, by what stands in for NCCL
        add_entry("${PREFIX} without a GPU, by NCCL: ${name}"
          "${properties} ENVIRONMENT [==[${STAND_IN};COX_COLLECTIVES_PEER_MEMORY=false]==]" ${LABELS})
      endif()
    endif()
  endif()
endwhile()
file(WRITE "${OUTPUT}" "${script}")
