# What `cmake --install` puts down: the library `pop`, its one header with its parts, the CMake package pop::pop, pop.pc, the program
# and its man page. tests/install installs into an empty prefix and builds a program against it in both ways.

include(CMakePackageConfigHelpers)

get_property(objects GLOBAL PROPERTY POP_OBJECT_LIBRARIES)
get_property(dependencies GLOBAL PROPERTY POP_LIBRARY_DEPENDENCIES)
list(REMOVE_DUPLICATES objects)
list(REMOVE_DUPLICATES dependencies)
# Headers only, used in our sources and never in the public header: whoever links the library does not need it.
list(FILTER dependencies EXCLUDE REGEX "^nlohmann_json::")

# The target is not called `pop`, since the program is; installed it is pop::pop and libpop.
add_library(pop_library)
foreach(library ${objects})
  target_sources(pop_library PRIVATE $<TARGET_OBJECTS:${library}>)
endforeach()
set_target_properties(pop_library PROPERTIES OUTPUT_NAME pop EXPORT_NAME pop LINKER_LANGUAGE CXX
                      VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
target_link_libraries(pop_library PRIVATE ${dependencies})
target_compile_features(pop_library INTERFACE cxx_std_20)
target_include_directories(pop_library INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
if(POP_SANITIZE)
  target_link_options(pop_library PUBLIC -fsanitize=${POP_SANITIZE})
endif()
add_library(pop::pop ALIAS pop_library)

install(TARGETS pop_library EXPORT popTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES engine/pop.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pop)
# Its parts lie beside it under the names it includes them by.
install(FILES engine/options.h engine/results.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pop/engine)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/pop)
install(EXPORT popTargets NAMESPACE pop:: DESTINATION ${package_folder})
configure_package_config_file(cmake/popConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/popConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/popConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/generated/popConfig.cmake ${CMAKE_BINARY_DIR}/generated/popConfigVersion.cmake
        DESTINATION ${package_folder})

# A static library cannot bring its own libraries along, so whoever links it must be told of them; of a shared one
# only `pkg-config --static` is.
set(POP_PC_REQUIRES fmt libpcre2-8 libutf8proc libxxhash libmd)
list(JOIN POP_PC_REQUIRES " " POP_PC_REQUIRES)
if(BUILD_SHARED_LIBS)
  set(POP_PC_PRIVATE ".private")
endif()
# Relative to the file itself: `cmake --install --prefix` may put it anywhere.
file(RELATIVE_PATH POP_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/pop.pc.in ${CMAKE_BINARY_DIR}/generated/pop.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/pop.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET pop)
  set_target_properties(pop PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})  # build/pop, as the documents say
  install(TARGETS pop RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  # Made of the program's own --help, so it cannot go stale.
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/pop.1
    COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/cmake/make_man_page.py $<TARGET_FILE:pop>
            ${PROJECT_VERSION} ${CMAKE_BINARY_DIR}/pop.1
    DEPENDS pop ${CMAKE_SOURCE_DIR}/cmake/make_man_page.py VERBATIM)
  add_custom_target(pop_man_page ALL DEPENDS ${CMAKE_BINARY_DIR}/pop.1)
  install(FILES ${CMAKE_BINARY_DIR}/pop.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
