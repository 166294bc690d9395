--- data.load_dataset: files of rows as tables.
--
--   | local parts = data.load_dataset("csv", {data_files = {train = "train.tsv", test = "dev.tsv"}})
--   | print(parts.train, parts.test[0].sentence)
local arguments = require "accelhost.util.arguments"
local column = require "accelhost.data.tables.column"
local RowFiles = require "accelhost.data.tables.row_files"
local RowStream = require("accelhost.data.tables.row_stream").RowStream
local sets = require "accelhost.data.tables.table"

local fail, describe = arguments.fail, arguments.describe
local load = {}

local read = arguments.signature("load_dataset", {
  "path: 'csv'|'json'|'text'", {"data_dir: string"}, {"data_files: string|table"}, {"split: string"},
  {"delimiter: string"}, {"quote: string|false"}, {"header: flag"}, {"column_names: list"}, {"features: table"},
  {"sample_by: 'line'|'paragraph'|'document'"}, {"streaming: flag", false},
})

-- Kind of file -> its options.
local taken = {
  csv = {delimiter = true, quote = true, header = true, column_names = true, features = true},
  json = {features = true},
  text = {sample_by = true},
}

local function check_options(options)
  for _, name in ipairs {"delimiter", "quote", "header", "column_names", "features", "sample_by"} do
    if options[name] ~= nil and not taken[options.path][name] then
      fail("load_dataset: %s: %s files have no such option", name, options.path)
    end
  end
  for _, name in ipairs {"delimiter", "quote"} do
    local value = options[name]
    if value and #value ~= 1 then fail("load_dataset: %s: expected one byte, got '%s'", name, value) end
  end
  for _, name in ipairs(arguments.sorted_keys(options.features or {})) do
    local kind, known = options.features[name], false
    for _, word in ipairs(column.types) do known = known or word == kind end
    if not known then
      fail("load_dataset: features: column '%s': unknown type %s (known: %s)", tostring(name), describe(kind),
        table.concat(column.types, ", "))
    end
  end
end

local function paths_of(options, files)
  local paths = {}
  files = type(files) == "string" and {files} or files
  if #files == 0 then fail("load_dataset: data_files: expected at least one file") end
  for i, path in ipairs(files) do
    if type(path) ~= "string" then
      fail("load_dataset: data_files: expected paths, item %d is %s", i, describe(path))
    end
    paths[i] = options.data_dir and path:sub(1, 1) ~= "/" and options.data_dir .. "/" .. path or path
  end
  return paths
end

local function read_files(options, files)
  local rows, columns, paths = RowFiles.table(options), {}, paths_of(options, files)
  for i, path in ipairs(paths) do
    local file = RowFiles.open_file(options, path)
    RowFiles.add(rows, file, path, i - 1)
    file:close()
  end
  local names, kinds = RowFiles.describe(options, rows, paths[1])
  for i, name in ipairs(names) do
    local values, text, line, number = rows:column(i - 1, kinds[name])
    if not values then RowFiles.misfit(paths, names, nil, text, line, number, i - 1) end
    columns[name] = column.of_file(values, kinds[name])
  end
  return sets.of(names, columns)
end

local function open_files(options, files)
  return RowStream(RowFiles(options, paths_of(options, files)))
end

--- The rows of files as tables (data.Table), by split: {train = Table} for a path or a list of paths, which are read
--- one behind the other; for {train = paths, test = paths} a table for each. With `split` the table of that one. With
--- `streaming` streams of rows (data.RowStream), which read the files block by block while they are read.
--
-- A column of a file is int64 where all its fields are whole numbers of 64 bits, float64 where all are numbers or, some
-- of them, empty (NaN), bool where all are true or false, else texts; for a stream this is inferred from the first
-- 10,000 rows of the first file. An error names the file and the line. Files may be compressed by gzip.
--
--   local path = os.tmpname()
--   local file = io.open(path, "w")
--   file:write("text,label\nfine,1\n\"not, bad\",0\n")
--   file:close()
--   local set = data.load_dataset("csv", {data_files = path, split = "train"})
--   print(set[1].text, set:column("label"))  --> not, bad  tensor([1, 0])
---@param path string "csv" (.tsv and .tab are parted by tabs, without quotes), "json" (an object on each line, or one
--- array of them) or "text" (a column "text")
---@param data_dir? string the folder of data_files that are no whole paths
---@param data_files string|table a path, a list of paths, or such by split
---@param delimiter? string of csv: one byte
---@param quote? string|false of csv: one byte, default '"'; false for none
---@param header? boolean of csv: does the first row hold names? Default true, false with column_names; without names
--- the columns are "0", "1", ...
---@param column_names? string[] of csv: the columns' names; with header = true the first row is passed over
---@param features? table<string, string> of csv and json: the types of columns: "bool", "float32", "float64", "int32",
--- "int64" or "string"
---@param sample_by? string of text: a row for each "line" (default), "paragraph" (empty lines part them) or "document"
---@param streaming? boolean read while iterating, instead of now (default false)
---@return Table|RowStream|table<string, Table|RowStream>
function load.load_dataset(...)
  local options, streaming = {}
  options.path, options.data_dir, options.data_files, options.split, options.delimiter, options.quote, options.header,
    options.column_names, options.features, options.sample_by, streaming = read(...)
  if not options.data_files then fail("load_dataset: 'data_files' is missing") end
  check_options(options)
  local files, split, read_part = options.data_files, options.split, streaming and open_files or read_files
  if type(files) == "string" or files[1] ~= nil or next(files) == nil then files = {train = files} end
  if split then
    if not files[split] then
      fail("load_dataset: split: there is no '%s' in data_files (there are: %s)", split,
        table.concat(arguments.sorted_keys(files), ", "))
    end
    return read_part(options, files[split])
  end
  local parts = {}
  for _, name in ipairs(arguments.sorted_keys(files)) do parts[name] = read_part(options, files[name]) end
  return parts
end

return load
