# Fails if PROGRAM loads a shared library whose name matches PATTERN (a|b|c), directly or through another one.
execute_process(COMMAND ldd ${PROGRAM} OUTPUT_VARIABLE libraries RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "ldd ${PROGRAM} ended with ${status}")
endif()
if(libraries MATCHES "${PATTERN}")
  message(FATAL_ERROR "${PROGRAM} loads a forbidden library (${PATTERN}):\n${libraries}")
endif()
