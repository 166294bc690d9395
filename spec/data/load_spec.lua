-- Files as tables: data.load_dataset.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local datasets = require "spec.support.datasets"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local data = accelhost.data

-- fn(path) with a file of this content.
local function with_file(content, fn, name)
  folder.with(function(dir)
    local path = dir .. "/" .. (name or "rows.csv")
    local file = assert(io.open(path, "wb"))
    file:write(content)
    file:close()
    fn(path, dir)
  end)
end

local function load(kind, path, options)
  options = options or {}
  options.data_files, options.split = path, "train"
  return data.load_dataset(kind, options)
end

local function refused(kind, content, text, options, name)
  with_file(content, function(path)
    check.raises("'" .. path .. "'" .. text, function() load(kind, path, options) end)
  end, name)
end

describe("A CSV file", function()
  it("has quotes, line ends, a byte order mark and types guessed from its fields", function()
    local text = '\239\187\191n,x,flag,text,hole\r\n1,0.5,true,"a, ""b""\nc",\r\n\r\n-9007199254740993,2,False,,1\n'
      .. ' 3 ,1e3,TRUE,7x,'
    with_file(text, function(path)
      local set = load("csv", path)
      assert.same({n = "int64", x = "float64", flag = "bool", text = "string", hole = "float64"}, set:features())
      assert.equal("tensor([                1, -9007199254740993,                 3])", tostring(set:column("n")))
      assert.same({0.5, 2, 1000}, set:column("x"):tolist())
      assert.same({true, false, true}, set:column("flag"):tolist())
      assert.same({'a, "b"\nc', "", "7x"}, set:column("text"))
      check.near({0 / 0, 1, 0 / 0}, set:column("hole"), 0)
    end)
  end)

  it("leaves fields that are not numbers as texts", function()
    for _, row in ipairs {"0x10", "1,5", "1 2", "nan(1)", "--1", "n", "in", ".", "1e", "99999999999999999999x"} do
      with_file("a\tb\n" .. row .. "\t1\n", function(path)
        assert.equal("string", load("csv", path):features().a, row)
      end, "rows.tsv")
    end
    local numbers = {["+7"] = "int64", ["007"] = "int64", ["9223372036854775808"] = "float64", ["-inf"] = "float64",
      [".5"] = "float64", NaN = "float64", ["1."] = "float64"}
    for row, kind in pairs(numbers) do
      with_file("a\n" .. row .. "\n", function(path) assert.equal(kind, load("csv", path):features().a, row) end)
    end
  end)

  it("of tabs has no quotes", function()
    with_file('text\tlabel\n"say "hi\t1\n', function(path)
      assert.equal('"say "hi', load("csv", path)[0].text)
      assert.equal(1, load("csv", path)[0].label)
    end, "rows.tsv")
  end)

  it("accepts other types, names, separators and quotes", function()
    with_file("1;'a;b'\n0;2\n", function(path)
      local options = {delimiter = ";", quote = "'", column_names = {"flag", "text"}, features = {flag = "bool"}}
      local set = load("csv", path, options)
      assert.same({{true, false}, {"a;b", "2"}}, {set:column("flag"):tolist(), set:column("text")})
      set = load("csv", path, {delimiter = ";", quote = "'", header = false, features = {["0"] = "float32"}})
      assert.same({"0", "1"}, set.column_names)
      assert.equal("float32", set:column("0").dtype)
      set = load("csv", path, {delimiter = ";", quote = "'", column_names = {"a", "b"}, header = true})
      assert.equal(1, #set)
      assert.equal(2, set[0].b)
    end)
  end)

  it("is read behind another with the same columns", function()
    with_file("a,b\n1,x\n", function(path, dir)
      local file = assert(io.open(dir .. "/more.csv", "wb"))
      file:write "a,b\n2,y\n3,z\n"
      file:close()
      local set = data.load_dataset("csv", {data_dir = dir, data_files = {"rows.csv", "more.csv"}}).train
      assert.same({1, 2, 3}, set:column("a"):tolist())
      local parts = data.load_dataset("csv", {data_files = {train = path, test = {dir .. "/more.csv"}}})
      assert.same({1, 2}, {#parts.train, #parts.test})
      check.raises("split: there is no 'dev' in data_files (there are: train)",
        function() data.load_dataset("csv", {data_files = path, split = "dev"}) end)
      file = assert(io.open(dir .. "/other.csv", "wb"))
      file:write "a,c\n2,y\n"
      file:close()
      check.raises("other.csv': line 1: column 1 is 'c', in the first file 'b'",
        function() load("csv", {path, dir .. "/other.csv"}) end)
    end)
  end)

  it("that is damaged is reported with its line", function()
    refused("csv", "a,b\n1,2\n\n3\n", ": line 4: 1 fields, expected 2")
    refused("csv", 'a,b\n1,"2\n', ": line 2: a quote is not closed")
    refused("csv", "a,b\n1,2\n3,\0\n", ": line 3: there is a byte 0 in it")
    refused("csv", "a,a\n1,2\n", ": two columns are named 'a'")
    refused("csv", "a\n1\nx\n", ": line 3: column 'a': expected a whole number of 64 bits, got 'x'",
      {features = {a = "int64"}})
    refused("csv", "a,b\n", ": delimiter and quote must differ", {delimiter = '"'})
    refused("csv", "\31\139rest", ": damaged gzip data")
    check.raises("'/nowhere.csv': cannot read", function() load("csv", "/nowhere.csv") end)
  end)

  it("accepts its own options only", function()
    check.raises("load_dataset: sample_by: csv files have no such option",
      function() load("csv", "x", {sample_by = "line"}) end)
    check.raises("load_dataset: delimiter: expected one byte, got '::'",
      function() load("csv", "x", {delimiter = "::"}) end)
    check.raises("load_dataset: features: column 'a': unknown type 'int' (known: bool, float32, float64, int32, int64, "
      .. "string)", function() load("csv", "x", {features = {a = "int"}}) end)
    check.raises("load_dataset: 'data_files' is missing", function() data.load_dataset("csv") end)
    check.raises("unknown path 'cvs'", function() data.load_dataset("cvs", {data_files = "x"}) end)
    with_file("a\n1\n", function(path)
      check.raises("features: '" .. path .. "' has no column 'b' (it has: a)",
        function() load("csv", path, {features = {b = "int64"}}) end)
    end)
  end)

  it("may be empty", function()
    for content, columns in pairs {[""] = 0, ["a,b\n"] = 2} do
      with_file(content, function(path)
        local set = load("csv", path)
        assert.same({0, columns}, {#set, #set.column_names})
      end)
    end
  end)
end)

describe("JSON", function()
  it("lines are rows, and a key that a row lacks is nil", function()
    local text = '{"a": 1, "s": "x\\u0000y", "f": true, "m": 1}\n\n{"s": "12", "a": 9007199254740993, "f": false, '
      .. '"m": "t"}\r\n{"z": [1, {"k": null}], "f": true, "s": "", "a": -3, "m": null}'
    with_file(text, function(path)
      local set = load("json", path)
      assert.same({"a", "s", "f", "m", "z"}, set.column_names)
      assert.same({a = "int64", s = "string", f = "bool", m = "mixed", z = "mixed"}, set:features())
      assert.same({"x\0y", "12", ""}, set:column("s"))
      assert.same({1, "t"}, {set[0].m, set[1].m})
      assert.is_nil(set[2].m)
      assert.is_nil(set[0].z)
      assert.equal(1, set[2].z[1])
      assert.equal("9007199254740993", tostring(set:column("a")):match "9007%d+")
    end)
    with_file('{"a": 2.0}\n{"a": 1e-3}\n{"a": 4}\n', function(path)
      assert.same({2, 0.001, 4}, load("json", path):column("a"):tolist())
      assert.equal("float64", load("json", path):features().a)
    end)
    with_file('{"a": 2.' .. ("0"):rep(80) .. ', "b": 2' .. ("0"):rep(80) .. '}\n', function(path)
      assert.same({a = "float64", b = "float64"}, load("json", path):features())
      assert.same({2, 2e80}, {load("json", path)[0].a, load("json", path)[0].b})
    end)
    refused("json", '{"a": 1e999}\n', ": line 1, column 7: a number beyond float64")
  end)

  it("has false in a column of mixed kinds", function()
    with_file('{"a": "x"}\n{"a": false}\n', function(path) assert.is_false(load("json", path)[1].a) end)
  end)

  it("may be one array of rows", function()
    with_file(' [{"a": "x"},\n {"a": "y"}]', function(path)
      assert.same({"x", "y"}, load("json", path):column("a"))
    end)
    refused("json", '[{"a": 1}, 2]', ": line 1: expected an object")
  end)

  it("that is damaged is reported with its line", function()
    refused("json", '{"a": 1}\n\n{"a" 2}\n', ": line 3, column ")
    refused("json", '{"a": 1}\n"text"\n', ": line 2: expected an object")
    refused("json", '{"a": 1, "a": 2}\n', ": line 1, column ")
    refused("json", '{"a": 1}\n{"a": 1}{}\n', ": line 2, column ")
  end)
end)

describe("Columns that few rows have", function()
  -- Rows of JSON with few of the columns c0, c1, ..., some null; and the same as tables.
  local function sparse_rows(count, columns)
    local lines, wanted = {}, {}
    for i = 1, count do
      local members, row = {}, {}
      for _ = 1, math.random(0, 3) do
        local name, kind = "c" .. math.random(columns) - 1, math.random(4)
        if row[name] == nil and kind < 4 then
          row[name] = ({i, "text " .. i, i % 2 == 0})[kind]
          members[#members + 1] = ("%q: %s"):format(name, accelhost.json.encode(row[name]))
        elseif row[name] == nil then
          row[name] = false
          members[#members + 1] = ("%q: null"):format(name)
        end
      end
      lines[i], wanted[i] = "{" .. table.concat(members, ", ") .. "}", row
    end
    return table.concat(lines, "\n") .. "\n", wanted
  end

  it("have their values in the rows that have them, and nil in the others", function()
    math.randomseed(5)
    for _, columns in ipairs {1, 3, 40} do
      local text, wanted = sparse_rows(300, columns)
      with_file(text, function(path)
        local set = load("json", path)
        local values = 0
        for i, row in ipairs(wanted) do
          for _, name in ipairs(set.column_names) do
            local value = row[name] or nil -- null is false there
            values = values + (value and 1 or 0)
            assert.equal(value, set[i - 1][name] or nil, name)
          end
        end
        assert.is_true(values > 50)
      end, "rows.jsonl")
    end
  end)

  it("need memory and time by their values, not by rows x columns", function()
    local names = {}
    for i = 0, 1999 do names[i + 1] = ('{"k%d": "v"}\n'):format(i) end
    local early, late = table.concat(names), ('{"k0": "v"}\n'):rep(100000)
    for _, text in ipairs {early .. late, late .. early} do
      with_file(text, function(path)
        local code = ([[local set = require("accelhost").data.load_dataset("json", {data_files = %q, split = "train"})
          print(#set, #set.column_names)]]):format(path)
        -- 200 million empty cells, with 1 GB of memory.
        local result = run.program {"sh", "-c", 'ulimit -d 1000000; exec "$0" -e "$1"', run.path, code}
        if result.stderr:find("Sanitizer", 1, true) then return pending "needs a build without a sanitizer" end
        assert.matches("^102000\t2000\n", result.stdout, result.output)
      end, "rows.jsonl")
    end
  end)
end)

describe("A row of a CSV", function()
  it("has at most 4096 fields, found before the row ends", function()
    local commas = (","):rep(4095)
    with_file("x" .. commas .. "y\n", function(path)
      local set = load("csv", path, {header = false})
      assert.equal(4096, #set.column_names)
      assert.same({"x", "y"}, {set[0]["0"], set[0]["4095"]})
    end)
    refused("csv", "x" .. commas .. ",y\n", ": line 1: more than 4096 fields", {header = false})
    refused("csv", "a,b\n1,2\n" .. commas .. ',\n"', ": line 3: more than 4096 fields")
  end)
end)

describe("A text", function()
  local text = "one\n\n two \r\nthree\n\n\n\nfour"
  it("is read by lines, paragraphs or whole", function()
    with_file(text, function(path)
      assert.same({"one", "", " two ", "three", "", "", "", "four"}, load("text", path):column("text"))
      assert.same({"one", " two \r\nthree", "four"}, load("text", path, {sample_by = "paragraph"}):column("text"))
      assert.same({text}, load("text", path, {sample_by = "document"}):column("text"))
    end)
    with_file("12\n13\n", function(path) assert.same({"12", "13"}, load("text", path):column("text")) end)
    refused("text", "a\nb\0", ": line 2: there is a byte 0 in it")
  end)
end)

describe("A column of strings", function()
  local code = [[local data = require("accelhost").data
    local set = data.Table {word = {"one", "two"}}
    local loaded = data.load_dataset("text", {data_files = "lines.txt", split = "train"})
    print(set[1].word, loaded[0].text)]]

  it("is made by a script, -e, -i, the prompt and a launched -e alike", function()
    with_file("first\n", function(_, dir)
      with_file(code, function(path)
        local launch = {"launch", "--num_processes", "1", "-e", code}
        for _, case in ipairs {{path}, {"-e", code}, {"-i", path}, {"repl"}, launch} do
          local stdin = case[1] == "repl" and code:gsub("\n", " ") .. "\n" or nil
          local result = run.host(case, {dir = dir, stdin = stdin})
          assert.equal("two\tfirst\n", result.stdout, table.concat(case, " ") .. ": " .. result.output)
        end
      end, "script.lua")
    end, "lines.txt")
  end)
end)

describe("SST-2", function()
  datasets.it("is read as its rows are", "sst2", function(dir)
    local set = load("csv", dir .. "/train.tsv")
    local i = 0
    for line in io.lines(dir .. "/train.tsv") do
      local sentence, label = line:match "^(.*)\t(%d)$"
      if sentence then
        local row = set[i]
        if row.sentence ~= sentence or row.label ~= tonumber(label) then
          error(("row %d is %s %s"):format(i, row.sentence, row.label))
        end
        i = i + 1
      end
    end
    assert.equal(i, #set)
  end)
end)

describe("MRPC", function()
  datasets.it("is read with its quotes", "mrpc", function(dir)
    local set = load("csv", dir .. "/train.csv")
    assert.equal(6, #set)
    assert.same({"label", "sentence1", "sentence2"}, set.column_names)
  end)
end)
