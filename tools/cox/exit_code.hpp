#pragma once

namespace cox::tools {

/// What every subcommand of cox ends with.
enum class ExitCode : int {
  Ok = 0,            ///< Everything was done, everything holds.
  Violation = 1,     ///< A law was broken, or the result could not be delivered.
  BadArguments = 2,  ///< What was asked for makes no sense.
  NoDevice = 3,      ///< A device cannot be had.
};

}  // namespace cox::tools
