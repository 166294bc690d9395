-- The messages of TensorBoard's event files, as the bytes of protocol buffers; the numbers of the fields are those of
-- its event.proto, summary.proto, tensor.proto, and the api.proto of its hparams plugin.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local field = C.events.field
local messages = {}

local FLOAT, DOUBLE, STRING = 1, 2, 7 -- DataType
local TEXT, FLAG, NUMBER = 1, 2, 3    -- HParamInfo's DataType
local START, SUCCESS = 1, 1           -- SessionLog, session_end_info

--- An event as a record.
---@param wall_time number
---@param step integer?
---@param content? string fields of the event
function messages.event(wall_time, step, content)
  return C.events.record(field(1, "double", wall_time) .. (step and field(2, "int", step) or "") .. (content or ""))
end

--- The content of the first event of a file.
messages.version = field(3, "bytes", "brain.Event:2")

--- Of the event from whose step on a run continues.
messages.restart = field(7, "bytes", field(1, "int", START))

--- Of an event with summary values.
---@param ... string
function messages.summary(...)
  local values = {...}
  for i, value in ipairs(values) do values[i] = field(1, "bytes", value) end
  return field(5, "bytes", table.concat(values))
end

local function metadata(plugin, content)
  local data = field(1, "bytes", plugin) .. (content and field(2, "bytes", content) or "")
  return field(9, "bytes", field(1, "bytes", data))
end

--- A scalar; `precision` "float" or "double" in the new form, as a tensor.
---@param value number
---@param precision? string
function messages.scalar(tag, value, precision)
  if not precision then return field(1, "bytes", tag) .. field(2, "float", value) end
  local double = precision == "double"
  local tensor = field(1, "int", double and DOUBLE or FLOAT) .. field(double and 6 or 5, precision, value)
  return field(1, "bytes", tag) .. field(8, "bytes", tensor) .. metadata "scalars"
end

--- A text, which TensorBoard shows as Markdown.
function messages.text(tag, text)
  local shape = field(2, "bytes", field(1, "int", 1))
  local tensor = field(1, "int", STRING) .. field(2, "bytes", shape) .. field(8, "bytes", text)
  return field(1, "bytes", tag .. "/text_summary") .. field(8, "bytes", tensor) .. metadata("text", "")
end

--- An image of a PNG file's bytes.
---@param png string
---@param rows integer
---@param columns integer
function messages.image(tag, png, rows, columns, channels)
  local image = field(1, "int", rows) .. field(2, "int", columns) .. field(3, "int", channels) .. field(4, "bytes", png)
  return field(1, "bytes", tag) .. field(4, "bytes", image)
end

--- A histogram.
---@param found table {min, max, num, sum, sum_squares, limits, counts}
function messages.histogram(tag, found)
  local histogram = field(1, "double", found.min) .. field(2, "double", found.max) .. field(3, "double", found.num)
    .. field(4, "double", found.sum) .. field(5, "double", found.sum_squares) .. field(6, "doubles", found.limits)
    .. field(7, "doubles", found.counts)
  return field(1, "bytes", tag) .. field(5, "bytes", histogram)
end

-- google.protobuf.Value, and the type that the plugin calls it.
local function plain(value)
  if type(value) == "string" then return field(3, "bytes", value), TEXT end
  if type(value) == "boolean" then return field(4, "int", value and 1 or 0), FLAG end
  return field(2, "double", value), NUMBER
end

local function plugin_value(tag, number, content)
  return field(1, "bytes", tag) .. metadata("hparams", field(1, "int", 0) .. field(number, "bytes", content))
end

-- HParamInfo: the name, kind and domain of a parameter.
local function parameter_info(name, kind, domain)
  local info = field(1, "bytes", name) .. field(4, "int", kind)
  if not domain then return info end
  local list = {}
  for i, value in ipairs(domain) do list[i] = field(1, "bytes", (plain(value))) end
  return info .. field(5, "bytes", table.concat(list))
end

--- The three values of an experiment with hyperparameters.
---@param parameters table<string, string|number|boolean>
---@param metrics string[] tags
---@param domains? table<string, any[]> allowed values of a parameter
---@return string, string, string
function messages.parameters(parameters, metrics, domains)
  local infos, given = {}, {}
  for _, name in ipairs(arguments.sorted_keys(parameters)) do
    local value, kind = plain(parameters[name])
    given[#given + 1] = field(1, "bytes", field(1, "bytes", name) .. field(2, "bytes", value))
    infos[#infos + 1] = field(4, "bytes", parameter_info(name, kind, domains and domains[name]))
  end
  for _, tag in ipairs(metrics) do infos[#infos + 1] = field(5, "bytes", field(1, "bytes", field(2, "bytes", tag))) end
  return plugin_value("_hparams_/experiment", 2, table.concat(infos)),
    plugin_value("_hparams_/session_start_info", 3, table.concat(given)),
    plugin_value("_hparams_/session_end_info", 4, field(1, "int", SUCCESS))
end

return messages
