--- The front end as the library sees it: displays, input, the end of the process.
local C = require "accelhost._C"
local display = require "accelhost.display"
local class = require "accelhost.util.class"
local screen = require "accelhost.util.screen"
local json = require "accelhost.util.json"
local mime = require "accelhost.jupyter.mime"
local text = require "accelhost.jupyter.text"

local front = {}

local identifiers = 0

local function identifier()
  identifiers = identifiers + 1
  return ("accelhost-%d"):format(identifiers)
end

-- The line of a progress bar, as text without quotes.
local Bar = class.new "Bar"
function Bar:init(drawn) self.drawn = drawn end
function Bar:_repr_mimebundle() return {["text/plain"] = self.drawn} end
local function bar_of(drawn) return Bar(drawn) end

local function publish(kernel, kind, shown, value, options)
  local data, metadata = mime.bundle(value, options)
  kernel:publish(kind, {data = data, metadata = metadata, transient = {display_id = shown._id}})
end

-- Ask the client that sent the cell for a line.
local function ask(kernel, prompt, password)
  if not kernel.request or not kernel.stdin then error("input: this front end answers no questions", 0) end
  while C.jupyter.wait("stdin", 0) do end -- answers to questions that were interrupted
  C.jupyter.send("stdin", kernel.request.route, kernel.request.header, "input_request",
    json.encode {prompt = text.utf8(prompt), password = password})
  while true do
    local answer, why = C.jupyter.wait("stdin", 60)
    if why == "end" then error("input: the kernel ends", 0) end
    if answer and answer.type == "input_reply" then
      local fine, content = pcall(json.decode, answer.content)
      return fine and type(content) == "table" and type(content.value) == "string" and content.value or ""
    end
  end
end

-- io.read by lines that the client types.
local function reader(kernel)
  local readers = {
    l = function() return ask(kernel, "", false) end,
    L = function() return ask(kernel, "", false) .. "\n" end,
    a = function() return ask(kernel, "", false) .. "\n" end,
    n = function() return tonumber(ask(kernel, "", false)) end,
  }
  return function(...)
    local results, count = {}, math.max(1, select("#", ...))
    for i = 1, count do
      local format = select(i, ...)
      if type(format) == "number" then
        results[i] = ask(kernel, "", false):sub(1, format)
      else
        local read = readers[(tostring(format or "*l"):gsub("^%*", "")):sub(1, 1)]
        if not read then error(("bad argument #%d to 'read' (invalid format)"):format(i), 2) end
        results[i] = read()
      end
    end
    return unpack(results, 1, count)
  end
end

-- Progress bars: one display each, updated in place. A bar that shall not remain ends as an empty line, in which the
-- next bar of the same cell is drawn.
local function surface(kernel, front_end)
  local shown, empty, request = setmetatable({}, {__mode = "k"}), nil, nil
  return {
    draw = function(line, drawn)
      if not shown[line] and empty and request == kernel.request then shown[line], empty = empty, nil end
      if shown[line] then
        front_end.update(shown[line], bar_of(drawn), {})
      else
        shown[line] = {}
        front_end.show(shown[line], bar_of(drawn), {})
      end
    end,
    close = function(line, leave)
      if shown[line] and not leave then
        front_end.update(shown[line], bar_of "", {})
        empty, request = shown[line], kernel.request
      end
      shown[line] = nil
    end,
    has = function(line) return shown[line] ~= nil end,
  }
end

--- Have the library's displays and questions reach the clients of a kernel.
---@param kernel Kernel
function front.install(kernel)
  display.front_end = {
    show = function(shown, value, options)
      shown._id = identifier()
      publish(kernel, "display_data", shown, value, options)
    end,
    update = function(shown, value, options) publish(kernel, "update_display_data", shown, value, options) end,
    input = function(prompt, password) return ask(kernel, prompt, password) end,
  }
  screen.surface = surface(kernel, display.front_end)
  rawset(io, "read", reader(kernel))
  local exit = os.exit
  rawset(os, "exit", function(...)
    C.jupyter.close()
    exit(...)
  end)
end

return front
