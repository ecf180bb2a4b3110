# pop_module(NAME [SOURCES ...] [DEPENDS folder ...] [LIBS target ...])
#   One folder of the library: objects pop_NAME_objects (the installed `pop` archive is made of them) and a static
#   library pop_NAME that tests of this folder link without building the folders below it.
# pop_test(NAME SOURCES ... [MODULES folder ...] [LIBS target ...] [FILTER pattern])
#   A GoogleTest program registered test by test with CTest. The working directory of a test is the repository root.
#   FILTER: only the tests that GoogleTest's --gtest_filter chooses by it.

set_property(GLOBAL PROPERTY POP_OBJECT_LIBRARIES "")
set_property(GLOBAL PROPERTY POP_LIBRARY_DEPENDENCIES "")

function(pop_compile_options target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic $<$<BOOL:${POP_WERROR}>:-Werror>
    # -ffp-contract=off: a contraction the compiler chooses here and not there would break "the same bits" (HACKING.md, Bits).
    -ffp-contract=off -fno-math-errno)
  if(POP_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${POP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${POP_SANITIZE})
  endif()
  if(POP_BUILD_FUZZERS)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  # Where it only tests, the compiler takes longer over these folders than their tests run.
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(folder IN_LIST POP_COLD_FOLDERS)
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

function(pop_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LIBS" ${ARGN})
  add_library(pop_${name}_objects OBJECT ${ARG_SOURCES})
  pop_compile_options(pop_${name}_objects)
  add_library(pop_${name} STATIC $<TARGET_OBJECTS:pop_${name}_objects>)
  set_target_properties(pop_${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(pop_${name} PUBLIC ${CMAKE_SOURCE_DIR})
  foreach(target pop_${name}_objects pop_${name})
    target_link_libraries(${target} PUBLIC ${ARG_LIBS})
    if(POP_SANITIZE)
      target_link_options(${target} PUBLIC -fsanitize=${POP_SANITIZE})
    endif()
  endforeach()
  foreach(dep ${ARG_DEPENDS})
    target_link_libraries(pop_${name} PUBLIC pop_${dep})
    # Usage requirements only: objects must not be archived twice.
    target_include_directories(pop_${name}_objects PUBLIC $<TARGET_PROPERTY:pop_${dep}_objects,INTERFACE_INCLUDE_DIRECTORIES>)
  endforeach()
  set_property(GLOBAL APPEND PROPERTY POP_OBJECT_LIBRARIES pop_${name}_objects)
  set_property(GLOBAL APPEND PROPERTY POP_LIBRARY_DEPENDENCIES ${ARG_LIBS})
endfunction()

function(pop_test name)
  if(NOT POP_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "FILTER" "SOURCES;MODULES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  pop_compile_options(${name})
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT folder MATCHES "^(kernels|tensor)$")  # of most tests only what they test is hot
    target_compile_options(${name} PRIVATE $<IF:$<BOOL:${POP_COLD_FOLDERS}>,-O0,$<$<CONFIG:Release>:-O1>>)
  endif()
  list(TRANSFORM ARG_MODULES PREPEND pop_)
  target_link_libraries(${name} PRIVATE ${ARG_MODULES} ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  if(ARG_FILTER)
    set(filter TEST_FILTER "${ARG_FILTER}")
  endif()
  gtest_discover_tests(${name} ${filter} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT 600)
endfunction()

# pop_fuzzer(NAME SOURCES ... MODULES folder ...)
#   A libFuzzer program (clang, POP_BUILD_FUZZERS). With that option everything is compiled so that libFuzzer sees where it goes.
function(pop_fuzzer name)
  if(NOT POP_BUILD_FUZZERS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;MODULES" ${ARGN})
  list(TRANSFORM ARG_MODULES PREPEND pop_)
  add_executable(${name} ${ARG_SOURCES})
  pop_compile_options(${name})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${ARG_MODULES})
endfunction()
