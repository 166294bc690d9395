-- Completion for bash, zsh and fish: the commands, their options with the values that are words, and files.
local C = require "accelhost._C"
local program = require "accelhost.docs.commands"

local completion = {}

local function names_of(commands)
  local list = {}
  for i, command in ipairs(commands) do list[i] = command.name end
  return table.concat(list, " ")
end

local function flags_of(command)
  local list = {}
  for _, option in ipairs(command.options) do list[#list + 1] = option.flag end
  return table.concat(list, " ")
end

-- "on|off" as words; nil where the value is anything.
local function choices_of(option)
  return option.value:find "^[%l%d_%-]+|[%l%d_|%-]+$" and (option.value:gsub("|", " ")) or nil
end

--- The script for bash.
---@param commands table[] of docs/commands.lua
function completion.bash(commands)
  local out = {
    "# Completion of accelhost for bash.", "_accelhost() {",
    "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=",
    "  if [ \"$COMP_CWORD\" = 1 ]; then",
    ("    words='%s'"):format(names_of(commands)), "  fi", "  case ${COMP_WORDS[1]}:$before in",
  }
  for _, command in ipairs(commands) do
    for _, option in ipairs(command.options) do
      local choices = choices_of(option)
      if choices then out[#out + 1] = ("  %s:%s) words='%s' ;;"):format(command.name, option.flag, choices) end
    end
  end
  out[#out + 1] = "  *) case ${COMP_WORDS[1]}:$word in"
  for _, command in ipairs(commands) do
    if #command.options > 0 then
      out[#out + 1] = ("    %s:-*) words='%s' ;;"):format(command.name, flags_of(command))
    end
  end
  out[#out + 1] = "    esac ;;"
  out[#out + 1] = "  esac"
  out[#out + 1] = "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))"
  out[#out + 1] = "}"
  out[#out + 1] = "complete -o default -F _accelhost accelhost"
  return table.concat(out, "\n") .. "\n"
end

-- In single quotes of a shell, brackets and colons as zsh's _arguments needs them.
local function zsh_text(text)
  return (text:gsub("'", "'\\''"):gsub("[%[%]:]", "\\%0"))
end

--- The script for zsh.
---@param commands table[]
function completion.zsh(commands)
  local out = {"#compdef accelhost", "local -a commands=("}
  for _, command in ipairs(commands) do
    out[#out + 1] = ("  '%s:%s'"):format(command.name, zsh_text(command.summary))
  end
  out[#out + 1] = ")"
  out[#out + 1] = "if ((CURRENT == 2)); then _describe command commands; _files; return; fi"
  out[#out + 1] = "case $words[2] in"
  for _, command in ipairs(commands) do
    local parts = {}
    for _, option in ipairs(command.options) do
      local choices = choices_of(option)
      local value = choices and (":value:(%s)"):format(choices) or option.value ~= "" and ":value:_files" or ""
      parts[#parts + 1] = ("'%s[%s]%s'"):format(option.flag, zsh_text(option.text), value)
    end
    parts[#parts + 1] = "'*:file:_files'"
    out[#out + 1] = ("%s) _arguments %s ;;"):format(command.name, table.concat(parts, " \\\n  "))
  end
  out[#out + 1] = "*) _files ;;"
  out[#out + 1] = "esac"
  return table.concat(out, "\n") .. "\n"
end

local function fish_text(text)
  return "'" .. text:gsub("\\", "\\\\"):gsub("'", "\\'") .. "'"
end

--- The script for fish.
---@param commands table[]
function completion.fish(commands)
  local out = {"# Completion of accelhost for fish."}
  for _, command in ipairs(commands) do
    out[#out + 1] = ("complete -c accelhost -n __fish_use_subcommand -a %s -d %s"):format(command.name,
      fish_text(command.summary))
  end
  for _, command in ipairs(commands) do
    for _, option in ipairs(command.options) do
      local choices = choices_of(option)
      local value = choices and (" -x -a %s"):format(fish_text(choices)) or option.value ~= "" and " -r" or ""
      out[#out + 1] = ("complete -c accelhost -n '__fish_seen_subcommand_from %s' -l %s%s -d %s"):format(command.name,
        option.flag:gsub("^%-%-", ""), value, fish_text(option.text))
    end
  end
  return table.concat(out, "\n") .. "\n"
end

--- Print the script for a shell, made from the help of the running program.
---@param shell string bash, zsh or fish
---@return integer exit_code
function completion.print(shell)
  local binary = assert(C.system.program(), "the path of the running program is not known")
  io.write(completion[shell](program.of(binary)))
  return 0
end

return completion
