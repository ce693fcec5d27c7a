#pragma once

/// For every variable that a header defines and that must exist once in the process, and for every inline function that
/// contains such a variable. A program or module compiled with -fvisibility=hidden or -fvisibility-inlines-hidden would
/// otherwise have a copy of its own, separate from that of a shared Coxswain library.
///
/// For an instantiation of a template, the template's arguments need the attribute too. Has no effect on static builds.
/// tools/checks/shared_state finds variables without it.
#define COX_VISIBILITY_DEFAULT [[gnu::visibility("default")]]
