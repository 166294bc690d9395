std = "luajit"
max_line_length = 120
codes = true
unused_args = false          -- a method takes the arguments of its interface
ignore = {"212"}
include_files = {"lua", "spec", "examples", "scripts", ".luacheckrc"}
exclude_files = {"spec/fixtures/**", "build*/**"}

files["spec"] = {std = "luajit+busted"}
files["scripts/busted.lua"] = {globals = {"arg"}}
