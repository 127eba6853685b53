# The Debian package of the programs: `cpack --config build/release/CPackConfig.cmake -B build/release`. It has a unit of
# systemd, and the user that this one needs. deploy/release.sh makes it with all else of a release.
if(NOT SVDSERVE_GRPC)
  return()
endif()
set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
# A plain `cmake --install` leaves these out: it must not write below /etc.
install(FILES ${debian}/svdserve.service DESTINATION lib/systemd/system COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/svdserve.sysusers DESTINATION lib/sysusers.d RENAME svdserve.conf COMPONENT debian
  EXCLUDE_FROM_ALL)
install(FILES ${debian}/svdserve.default DESTINATION /etc/default RENAME svdserve COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/copyright DESTINATION share/doc/svdserve COMPONENT debian EXCLUDE_FROM_ALL)

find_program(SVDSERVE_GZIP gzip)
if(SVDSERVE_GZIP)
  set(changelog ${CMAKE_BINARY_DIR}/debian/changelog)
  file(WRITE ${changelog} "svdserve (${PROJECT_VERSION}) unstable; urgency=medium

  * See CHANGELOG.md of the sources.

 -- The svdserve authors <svdserve@example.org>  Thu, 01 Jan 1970 00:00:00 +0000
")
  execute_process(COMMAND ${SVDSERVE_GZIP} -9nfk ${changelog})
  install(FILES ${changelog}.gz DESTINATION share/doc/svdserve COMPONENT debian EXCLUDE_FROM_ALL)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME svdserve)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs debian)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The svdserve authors <svdserve@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "SVDs and eigenproblems as a service")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "A gRPC server that decomposes batches of small matrices and single large ones,
 on CPUs and NVIDIA GPUs, and its command line.")
set(CPACK_PRE_BUILD_SCRIPTS ${debian}/compress.cmake)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# systemd, or another package, makes the user.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/postinst ${debian}/prerm ${debian}/postrm ${debian}/conffiles)
include(CPack)
