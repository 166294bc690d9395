--- Data sets from files of rows: CSV and TSV, JSON lines, in memory or as streams.
--
--   | local set = data.CSV("train.csv", {types = {label = "int64"}})
--   for batch in data.DataLoader(set, {batch_size = 32}) do print(batch.label, batch.sentence[1]) end
--
-- A sample is a table of a row's fields by name. Errors name the file, the row (from 1, without the header) and the
-- line.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local dataset = require "accelhost.data.dataset"
local iterable = require "accelhost.data.iterable"
local json = require "accelhost.util.json"
local worker = require "accelhost.data.worker"

local fail, describe, signature = arguments.fail, arguments.describe, arguments.signature
local rows = {}

-- Types of columns: what a text becomes, nil when it is none. Floats are tensors, so that a batch has their dtype even
-- where all are whole.
local function number_of(text)
  if text:find "^%s*[-+]?[%d.]" or text:lower():find "^%s*[-+]?nan%s*$" or text:lower():find "^%s*[-+]?inf" then
    return not text:find "[xX]" and tonumber(text) or nil
  end
end

local function float(dtype)
  return function(text)
    local number = number_of(text)
    return number and C.tensor(number, {dtype = dtype, device = "cpu"})
  end
end

local BOOLEANS = {["true"] = true, ["1"] = true, ["false"] = false, ["0"] = false}

local parsers = {
  string = function(text) return text end,
  int64 = function(text)
    local number = number_of(text)
    return number and number % 1 == 0 and math.abs(number) <= 2 ^ 53 and number or nil
  end,
  float32 = float "float32",
  float64 = float "float64",
  bool = function(text) return BOOLEANS[text:lower()] end,
}

local expected = {
  int64 = "a whole number of at most 2^53", float32 = "a number", float64 = "a number",
  bool = "true, false, 1 or 0",
}

local parameters = {
  "path: string", {"delimiter: string"}, {"header: flag|list", true}, {"types: table", {}}, {"quote: string|false"},
}

-- A reader of typed rows: how the file is read, and the names of its columns once it is open.
local function source(what, path, delimiter, header, types, quote)
  local tabs = path:lower():find "%.tsv$" or path:lower():find "%.tab$"
  delimiter = delimiter or tabs and "\t" or ","
  if #delimiter ~= 1 then fail("%s: delimiter: expected one byte, got '%s'", what, delimiter) end
  if quote == nil then quote = delimiter ~= "\t" and '"' end
  if quote and #quote > 1 then fail("%s: quote: expected one byte or false, got '%s'", what, quote) end
  for _, name in ipairs(arguments.sorted_keys(types)) do
    local kind = types[name]
    if not parsers[kind] then
      fail("%s: types: column '%s': unknown type %s (known: bool, float32, float64, int64, string)", what,
        tostring(name), describe(kind))
    end
  end
  return {what = what, path = path, delimiter = delimiter, header = header, types = types, quote = quote}
end

-- The names of the columns: the header's, those given, or 1, 2, ...
local function names_of(from, first)
  local names, seen = {}, {}
  if type(from.header) == "table" then
    names = from.header
  else
    for i = 1, #first do names[i] = from.header and first[i] or i end
  end
  for i, name in ipairs(names) do
    if seen[name] then fail("%s: '%s': two columns are named '%s'", from.what, from.path, tostring(name)) end
    seen[name] = i
  end
  for _, name in ipairs(arguments.sorted_keys(from.types)) do
    if not seen[name] then
      local known = {}
      for i = 1, #names do known[i] = tostring(names[i]) end
      fail("%s: '%s' has no column '%s' (it has: %s)", from.what, from.path, tostring(name), table.concat(known, ", "))
    end
  end
  return names
end

-- Open the file: names of the columns, and a function that gives the next row's texts, its number and its line.
local function open(from)
  local reader = C.data.csv(from.path, from.delimiter, from.quote or nil)
  local before = 0
  local function step()
    local fields, row, line = reader:next()
    return fields, row and row - before, line
  end
  local fields, row, line = step()
  local names = names_of(from, fields or {})
  if from.header == true then
    before = 1
    return names, step
  end
  local function first_again()
    if fields then
      local first = fields
      fields = nil
      return first, row, line
    end
    return step()
  end
  return names, first_again
end

local function typed(from, names, fields, row, line)
  local sample = {}
  if #fields ~= #names then
    fail("%s: '%s', row %d (line %d): %d fields, expected %d", from.what, from.path, row, line, #fields, #names)
  end
  for i, name in ipairs(names) do
    local kind = from.types[name] or "string"
    local value = parsers[kind](fields[i])
    if value == nil then
      fail("%s: '%s', row %d (line %d): column '%s': expected %s, got '%s'", from.what, from.path, row, line,
        tostring(name), expected[kind], fields[i])
    end
    sample[name] = value
  end
  return sample
end

---@class CSV: Dataset
---@field names string[] of the columns
local CSV = dataset.Dataset:extend "CSV"
rows.CSV = CSV

local read_csv = signature("CSV", parameters)

--- A file of rows in memory: CSV, or with tabs (.tsv). Sample i is a table of row i's fields by column.
--
--   local path = os.tmpname()
--   local file = io.open(path, "w")
--   file:write("text,label\nfine,1\nbad,0\n")
--   file:close()
--   local set = data.CSV(path, {types = {label = "int64"}})
--   print(#set, set:get(0).text, set:get(0).label)  --> 2  fine  1
---@param path string
---@param delimiter? string|table one byte; default a comma, a tab where the name ends in .tsv or .tab
---@param header? boolean|string[] does the first row hold the names (default true)? Or the names; with false the
--- columns are 1, 2, ...
---@param types? table<string, string> "int64", "float32", "float64", "bool" or "string" by column; default: texts
---@param quote? string|false one byte; default '"', and none where tabs separate
function CSV:init(...)
  self._from = source("CSV", read_csv(...))
  local names, following = open(self._from)
  self.names, self._rows = names, {}
  for fields, row, line in following do self._rows[row] = typed(self._from, names, fields, row, line) end
end

function CSV:len() return #self._rows end

function CSV:get(i)
  local row = type(i) == "number" and self._rows[i + 1]
  if not row then fail("CSV: index %s is out of range (0 to %d)", tostring(i), #self._rows - 1) end
  return row
end

--- A column: a tensor of its type, or a table of texts.
--
--   | local labels = data.CSV("train.csv", {types = {label = "int64"}}):column("label")
---@param name string
---@return userdata|string[]
function CSV:column(name)
  local values, kind = {}, self._from.types[name] or "string"
  local known = false
  for i = 1, #self.names do known = known or self.names[i] == name end
  if not known then fail("column: '%s' has no column '%s'", self._from.path, tostring(name)) end
  for i, row in ipairs(self._rows) do values[i] = row[name] end
  if kind == "string" then return values end
  if kind == "float32" or kind == "float64" then
    return #values > 0 and C.stack(values, 0) or C.zeros(0, {dtype = kind})
  end
  return C.tensor(values, {dtype = kind})
end

-- Every n-th sample of a walk in the n workers of a loader, so that together they give each once.
local function share_of(following)
  local info = worker.get_worker_info()
  if not info then return following end
  local skip = info.id
  return function()
    for _ = 1, skip do
      if following() == nil then return nil end
    end
    skip = info.num_workers - 1
    return following()
  end
end

---@class CSVStream: IterableDataset
local CSVStream = iterable.IterableDataset:extend "CSVStream"
rows.CSVStream = CSVStream

local read_stream = signature("CSVStream", parameters)

--- The rows of a file one after the other, as CSV gives them, without holding them. The workers of a loader share them.
--
--   local path = os.tmpname()
--   local file = io.open(path, "w")
--   file:write("text,label\nfine,1\nbad,0\n")
--   file:close()
--   for batch in data.DataLoader(data.CSVStream(path, {types = {label = "int64"}}), {batch_size = 2}) do
--     print(batch.text[2], batch.label)  --> bad  tensor([1, 0])
--   end
---@param path string
---@param delimiter? string|table as for CSV
---@param header? boolean|string[] as for CSV
---@param types? table<string, string> as for CSV
---@param quote? string|false as for CSV
function CSVStream:init(...)
  self._from = source("CSVStream", read_stream(...))
  self.names = open(self._from)
end

function CSVStream:iter()
  local names, following = open(self._from)
  return share_of(function()
    local fields, row, line = following()
    return fields and typed(self._from, names, fields, row, line)
  end)
end

-- JSON lines.

local function decoded(what, path, line, text)
  local fine, value = pcall(json.decode, text)
  if not fine then fail("%s: '%s', line %d: %s", what, path, line, (tostring(value):gsub("^.-: ", "", 1))) end
  return value
end

-- A function that gives the next line that is not empty, and its number.
local function lines_of(what, path)
  local file, reason = io.open(path, "rb")
  if not file then fail("%s: cannot read '%s': %s", what, path, reason) end
  local number = 0
  return function()
    while file do
      local text = file:read "*l"
      number = number + 1
      if not text then
        file:close()
        file = nil
      elseif text:find "%S" then
        return text, number
      end
    end
  end
end

---@class JSONLines: Dataset
local JSONLines = dataset.Dataset:extend "JSONLines"
rows.JSONLines = JSONLines

local read_lines = signature("JSONLines", {"path: string"})

--- A file of JSON lines, a value on each: sample i is that of line i, counted from 0, read when it is asked for.
--
--   local path = os.tmpname()
--   local file = io.open(path, "w")
--   file:write('{"text": "fine", "label": 1}\n{"text": "bad", "label": 0}\n')
--   file:close()
--   local set = data.JSONLines(path)
--   print(#set, set:get(1).text)  --> 2  bad
---@param path string
function JSONLines:init(...)
  self.path = read_lines(...)
  self._texts, self._lines = {}, {}
  for text, number in lines_of("JSONLines", self.path) do
    self._texts[#self._texts + 1], self._lines[#self._lines + 1] = text, number
  end
end

function JSONLines:len() return #self._texts end

function JSONLines:get(i)
  local text = type(i) == "number" and self._texts[i + 1]
  if not text then fail("JSONLines: index %s is out of range (0 to %d)", tostring(i), #self._texts - 1) end
  return decoded("JSONLines", self.path, self._lines[i + 1], text)
end

---@class JSONLinesStream: IterableDataset
local JSONLinesStream = iterable.IterableDataset:extend "JSONLinesStream"
rows.JSONLinesStream = JSONLinesStream

local read_json_stream = signature("JSONLinesStream", {"path: string"})

--- The values of a file of JSON lines, one after the other. The workers of a loader share them.
--
--   local path = os.tmpname()
--   local file = io.open(path, "w")
--   file:write("[1, 2]\n[3, 4]\n")
--   file:close()
--   for row in data.JSONLinesStream(path):iter() do print(row[1]) end  --> 1
--   --> 3
---@param path string
function JSONLinesStream:init(...)
  self.path = read_json_stream(...)
end

function JSONLinesStream:iter()
  local following = lines_of("JSONLinesStream", self.path)
  return share_of(function()
    local text, number = following()
    if text then return decoded("JSONLinesStream", self.path, number, text) end
  end)
end

return rows
