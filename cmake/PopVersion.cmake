# The source behind base/version.h: version, commit and compiler as they were when the build was configured.
# POP_VERSION_SOURCE is that file, compiled into base.

set(POP_COMMIT "unknown")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS "${CMAKE_SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --short=12 HEAD WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                  OUTPUT_VARIABLE commit RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(POP_COMMIT "${commit}")
    execute_process(COMMAND "${GIT_EXECUTABLE}" rev-parse --git-path logs/HEAD WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
                    OUTPUT_VARIABLE head_log OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    get_filename_component(head_log "${head_log}" ABSOLUTE BASE_DIR "${CMAKE_SOURCE_DIR}")
    # Each commit or checkout appends to this log: the next build configures again, and names the right commit.
    if(EXISTS "${head_log}")
      set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${head_log}")
    endif()
  endif()
endif()

set(POP_VERSION_SOURCE "${CMAKE_BINARY_DIR}/generated/version.cpp")
configure_file("${CMAKE_SOURCE_DIR}/base/version.cpp.in" "${POP_VERSION_SOURCE}" @ONLY)
