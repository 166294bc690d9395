-- Manual pages: accelhost(1), and one for each command with its own options, as accelhost-launch(1).
local man = {}

local function escape(text)
  text = text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("`([^`]*)`", "\\fB%1\\fR")
  -- A line must not begin like a request.
  return (text:gsub("^([%.'])", "\\&%1"):gsub("\n([%.'])", "\n\\&%1"))
end

local function add_head(out, name, summary, date, version)
  out[#out + 1] = ('.TH %s 1 "%s" "accelhost %s" "accelhost"'):format(name:upper():gsub("%-", "\\-"), date, version)
  out[#out + 1] = ".SH NAME"
  out[#out + 1] = ("%s \\- %s"):format(escape(name), escape(summary))
end

local function add_synopsis(out, usage)
  out[#out + 1] = ".SH SYNOPSIS"
  out[#out + 1] = ".nf"
  for _, line in ipairs(usage) do out[#out + 1] = escape(line) end
  out[#out + 1] = ".fi"
end

local function add_options(out, options)
  for _, option in ipairs(options) do
    out[#out + 1] = ".TP"
    local value = option.value ~= "" and (" \\fI%s\\fR"):format(escape(option.value)) or ""
    out[#out + 1] = ("\\fB%s\\fR%s"):format(escape(option.flag), value)
    out[#out + 1] = escape(option.text)
  end
end

local function add_paragraphs(out, lines)
  local open = false
  for _, line in ipairs(lines) do
    if line == "" then
      if open then out[#out + 1] = ".PP" end
    elseif line:find "^  " then
      out[#out + 1] = ".br"
      out[#out + 1] = escape(line)
    else
      out[#out + 1] = escape(line)
      open = true
    end
  end
  if out[#out] == ".PP" then out[#out] = nil end
end

-- "exit codes: 0 ok, 1 script error, 2 usage" as a list
local function add_exit_codes(out, tail)
  local text = table.concat(tail, " "):match "exit codes: (.*)$"
  if not text then return end
  out[#out + 1] = ".SH EXIT STATUS"
  for code, meaning in (text .. ","):gmatch "%s*([%d%+n]+) ([^,]+)," do
    out[#out + 1] = ".TP"
    out[#out + 1] = "\\fB" .. escape(code) .. "\\fR"
    out[#out + 1] = escape(meaning)
  end
end

local function add_variables(out, variables)
  out[#out + 1] = ".SH ENVIRONMENT"
  for _, variable in ipairs(variables) do
    out[#out + 1] = ".TP"
    out[#out + 1] = "\\fB" .. escape(variable.name) .. "\\fR"
    for _, part in ipairs(variable.parts) do out[#out + 1] = escape(part.text or "") end
  end
end

--- Has a command its own page? The options of `run` are the program's.
---@param command table of docs/commands.lua
---@return boolean
function man.has_page(command)
  return command.name ~= "run"
end

--- The page of the program.
---@param commands table[] of commands.lua
---@param variables table[] of the model
---@param version string
---@param date string
---@return string
function man.program(commands, variables, version, date)
  local out, run = {}, nil
  for _, command in ipairs(commands) do
    if command.name == "run" then run = command end
  end
  add_head(out, "accelhost", "train neural networks in Lua, in one process or many", date, version)
  local usage = {}
  for _, command in ipairs(commands) do
    for _, line in ipairs(command.usage) do usage[#usage + 1] = line end
  end
  add_synopsis(out, usage)
  out[#out + 1] = ".SH DESCRIPTION"
  add_paragraphs(out, run.text)
  out[#out + 1] = ".SH COMMANDS"
  for _, command in ipairs(commands) do
    out[#out + 1] = ".TP"
    out[#out + 1] = "\\fB" .. command.name .. "\\fR"
    out[#out + 1] = escape(command.summary .. ".")
  end
  out[#out + 1] = ".SH OPTIONS"
  add_options(out, run.options)
  add_exit_codes(out, run.tail)
  add_variables(out, variables)
  out[#out + 1] = ".SH SEE ALSO"
  local also = {}
  for _, command in ipairs(commands) do
    if man.has_page(command) then also[#also + 1] = ("\\fBaccelhost\\-%s\\fR(1)"):format(escape(command.name)) end
  end
  out[#out + 1] = table.concat(also, ", ") .. "; \\fBaccelhost help\\fR has the reference of all functions."
  return table.concat(out, "\n") .. "\n"
end

--- The page of a command.
---@param command table of commands.lua
---@param version string
---@param date string
---@return string
function man.command(command, version, date)
  local out = {}
  add_head(out, "accelhost-" .. command.name, command.summary, date, version)
  add_synopsis(out, command.usage)
  out[#out + 1] = ".SH DESCRIPTION"
  add_paragraphs(out, command.text)
  if #command.options > 0 then
    out[#out + 1] = ".SH OPTIONS"
    add_options(out, command.options)
  end
  add_exit_codes(out, command.tail)
  out[#out + 1] = ".SH SEE ALSO"
  out[#out + 1] = "\\fBaccelhost\\fR(1)"
  return table.concat(out, "\n") .. "\n"
end

return man
