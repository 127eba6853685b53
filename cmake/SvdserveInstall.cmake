# The folders that `cmake --install` fills, and the package that find_package(svdserve) reads:
#   bin/                         svdserve, svdctl
#   include/svdserve/            the client's headers: <svdserve/client.h>, <svdserve/eigen.h>; and those of the engine
#                                under their paths of the source tree: "engine/svd_engine.h"
#   lib/libsvdserve_client.so    the client, svdserve::client; lib/pkgconfig/svdserve-client.pc names it, too
#   lib/, lib/cmake/svdserve/    static libraries of svdserve::engine; the CMake package
#   lib/libsvdserve_cuda.so      the CUDA back end, where it was built; what links svdserve::engine looks there, too
#   share/svdserve/proto/        the wire contract
include(CMakePackageConfigHelpers)
set(SVDSERVE_INSTALL_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/svdserve)
set(SVDSERVE_INSTALL_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR}/svdserve)

# The libraries of this project that `target` is made of, itself included: static libraries need them all.
function(svdserve_parts_of target out)
  get_target_property(linked ${target} LINK_LIBRARIES)
  set(parts ${target})
  foreach(library IN LISTS linked)
    if(TARGET "${library}")
      get_target_property(real ${library} ALIASED_TARGET)
      if(real)
        set(library ${real})
      endif()
      get_target_property(imported ${library} IMPORTED)
      if(NOT imported)
        svdserve_parts_of(${library} more)
        list(APPEND parts ${more})
      endif()
    endif()
  endforeach()
  list(REMOVE_DUPLICATES parts)
  set(${out} ${parts} PARENT_SCOPE)
endfunction()

# svdserve_install_package(component target header...): the component can be had alone, without the dependencies of
# others.
function(svdserve_install_package component target)
  svdserve_parts_of(${target} parts)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${component})
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${SVDSERVE_INSTALL_INCLUDE}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  install(TARGETS ${parts} EXPORT svdserve_${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
  install(EXPORT svdserve_${component} FILE svdserve-${component}.cmake NAMESPACE svdserve::
    DESTINATION ${SVDSERVE_INSTALL_CMAKE} COMPONENT ${component})
  foreach(header IN LISTS ARGN)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES ${header} DESTINATION ${SVDSERVE_INSTALL_INCLUDE}/${folder} COMPONENT ${component})
  endforeach()
endfunction()

file(GLOB engine_headers RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS engine/*.h)
svdserve_install_package(engine svdserve_engine ${engine_headers})
if(SVDSERVE_GRPC)
  if(TARGET svdserve_client_shared)
    target_include_directories(svdserve_client_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(svdserve_client_shared INTERFACE cxx_std_20)
    install(TARGETS svdserve_client_shared EXPORT svdserve_client
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client)
    install(EXPORT svdserve_client FILE svdserve-client.cmake NAMESPACE svdserve::
      DESTINATION ${SVDSERVE_INSTALL_CMAKE} COMPONENT client)
    install(FILES ${SVDSERVE_CLIENT_HEADERS} DESTINATION ${SVDSERVE_INSTALL_INCLUDE} COMPONENT client)
    # From the folder of the file, so that an installation may be moved.
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
      OUTPUT_VARIABLE SVDSERVE_PC_LIBDIR)
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
      OUTPUT_VARIABLE SVDSERVE_PC_INCLUDEDIR)
    configure_file(cmake/svdserve-client.pc.in ${CMAKE_BINARY_DIR}/svdserve-client.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/svdserve-client.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT client)
  endif()
  install(TARGETS svdserve svdctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  install(FILES proto/svdserve/v1/svd_service.proto DESTINATION ${CMAKE_INSTALL_DATADIR}/svdserve/proto/svdserve/v1
    COMPONENT programs)
  install(FILES proto/google/rpc/status.proto DESTINATION ${CMAKE_INSTALL_DATADIR}/svdserve/proto/google/rpc
    COMPONENT programs)
endif()
if(SVDSERVE_CUDA)
  # Not CMAKE_INSTALL_LIBDIR: programs look in ../lib, whatever this platform calls its folder for static libraries.
  # OPTIONAL: a build of the programs alone installs them alone.
  install(TARGETS svdserve_cuda LIBRARY DESTINATION lib COMPONENT cuda OPTIONAL)
endif()
if(NOT SVDSERVE_SIMD STREQUAL "all")
  install(CODE "message(WARNING \"these kernels are for the build machine's instruction set alone: \"
    \"configure with 'cmake --preset release' for all\")" ALL_COMPONENTS)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)

configure_package_config_file(cmake/svdserveConfig.cmake.in ${CMAKE_BINARY_DIR}/svdserveConfig.cmake
  INSTALL_DESTINATION ${SVDSERVE_INSTALL_CMAKE} NO_SET_AND_CHECK_MACRO)
# Before 1.0 every minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/svdserveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
foreach(component engine client)
  install(FILES ${CMAKE_BINARY_DIR}/svdserveConfig.cmake ${CMAKE_BINARY_DIR}/svdserveConfigVersion.cmake
    DESTINATION ${SVDSERVE_INSTALL_CMAKE} COMPONENT ${component})
endforeach()
