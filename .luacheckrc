std = "luajit"
max_line_length = 120
codes = true
unused_args = false
ignore = {
  "212", -- a method takes the arguments of its interface
  "581", -- not (x <= y) is how a NaN is caught
}
include_files = {"lua/**/*.lua", "spec/**/*.lua", "examples/**/*.lua", "scripts/**/*.lua", ".luacheckrc"}
exclude_files = {"build*/**"}

files["spec"] = {std = "luajit+busted"}
files["scripts/busted.lua"] = {globals = {"arg"}}
