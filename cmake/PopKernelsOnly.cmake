# POP_KERNELS_ONLY: base, tensor and kernels with their tests, for a cross build. Of the libraries these need only {fmt} and
# GoogleTest, taken as headers and as sources from the machine that builds, so that nothing has to be installed for the
# machine that runs. (/usr/include itself must not be searched: it is the builder's.)
find_path(POP_FMT_HEADERS fmt/format.h REQUIRED PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH)
find_path(POP_GTEST_SOURCE googletest/CMakeLists.txt REQUIRED PATHS /usr/src/googletest NO_CMAKE_FIND_ROOT_PATH)

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/headers)
file(CREATE_LINK ${POP_FMT_HEADERS}/fmt ${CMAKE_BINARY_DIR}/headers/fmt SYMBOLIC)
add_library(fmt::fmt INTERFACE IMPORTED)
target_include_directories(fmt::fmt SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/headers)
target_compile_definitions(fmt::fmt INTERFACE FMT_HEADER_ONLY)

if(POP_BUILD_TESTS)
  set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
  set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
  add_subdirectory(${POP_GTEST_SOURCE} ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
  if(NOT TARGET GTest::gtest)
    add_library(GTest::gtest ALIAS gtest)
    add_library(GTest::gtest_main ALIAS gtest_main)
  endif()
endif()
