#pragma once

/// For every variable that a header defines and that must exist once in the process, and for every inline function that
/// contains such a variable. A program or module compiled with -fvisibility=hidden or -fvisibility-inlines-hidden would
/// otherwise have a copy of its own, separate from that of a shared Coxswain library.
///
/// For an instantiation of a template, the template's arguments need the attribute too. tools/checks/shared_state finds
/// variables without it.
///
/// Empty unless the library was built with BUILD_SHARED_LIBS, whose CMake targets define COX_SHARED. A module that
/// contains a static copy and hides its symbols hides these too: exported, they would be unique symbols of the process,
/// and each access would read the GOT.
#if defined(COX_SHARED)
#define COX_VISIBILITY_DEFAULT [[gnu::visibility("default")]]
#else
#define COX_VISIBILITY_DEFAULT
#endif
