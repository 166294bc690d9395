--- The program's commands, from their own help: {name, summary, usage = {lines}, text, options = {{flag, value, text}},
--- tail}.
local commands = {}

local function output_of(binary, words)
  local pipe = assert(io.popen(("COLUMNS=100 '%s' %s"):format(binary, words)))
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local function add_option(command, line)
  local flag, rest = line:match "^  (%-%-[%w_%-]+)%s*(.*)$"
  if flag then
    local value, text = rest:match "^(%S+)  +(.*)$"
    if not value and rest:find "^%u[%u_]*$" then value, text = rest, "" end
    command.options[#command.options + 1] = {flag = flag, value = value or "", text = text or rest}
    return true
  end
  local last = command.options[#command.options]
  local more = last and line:match "^%s%s%s+(%S.*)$"
  if more then last.text = (last.text .. " " .. more):gsub("^ ", "") end
  return more ~= nil
end

local function parse(name, text)
  local command = {name = name, usage = {}, text = {}, options = {}, tail = {}}
  local state = "usage"
  for line in text:gmatch "([^\n]*)\n" do
    if state == "usage" and line ~= "" then
      command.usage[#command.usage + 1] = line:gsub("^usage: ", ""):gsub("^%s+", "")
    elseif line == "" then
      state = state == "usage" and "text" or state
      if state == "options" then state = "tail" end
      if state == "text" then command.text[#command.text + 1] = "" end
    elseif line:find "^%l+:$" then -- "options:", or a group of them
      state = "options"
    elseif state == "options" then
      add_option(command, line)
    elseif state == "text" and line:find "^  %-%-" then
      add_option(command, line)
    else
      table.insert(command[state], line)
    end
  end
  return command
end

--- All commands of a program.
---@param binary string
function commands.of(binary)
  local list = {}
  local inside = false
  for line in output_of(binary, "--help"):gmatch "([^\n]*)\n" do
    if line == "commands:" then
      inside = true
    elseif line == "" then
      inside = false
    elseif inside then
      local name, summary = line:match "^  (%S+)%s+(.*)$"
      local command = parse(name, output_of(binary, name .. " --help"))
      command.summary = summary
      list[#list + 1] = command
    end
  end
  return list
end

return commands
