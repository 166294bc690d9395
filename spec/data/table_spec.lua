-- Data sets by columns: data.Table.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local data = accelhost.data

-- torch.randperm(8) with seed 42.
local SEED42 = {6, 3, 0, 7, 2, 1, 4, 5}

local function numbers(count)
  local list, names = {}, {}
  for i = 1, count do list[i], names[i] = i - 1, "row " .. i - 1 end
  return data.Table {n = list, name = names}
end

local function column(set, name) return set:column(name or "n"):tolist() end

describe("A table", function()
  local set = data.Table({
    text = {"fine", "bad", ""}, label = accelhost.tensor({2, 0, 1}, {dtype = "int64"}), score = {0.5, 2, 1},
    flag = {true, false, true}, pair = accelhost.arange(6):reshape(3, 2), any = {{1}, "x", {y = 2}},
  }, {"text", "label", "score", "flag", "pair", "any"})

  it("returns rows by number, from 0", function()
    assert.equal(3, #set)
    assert.equal(3, set.num_rows)
    local row = set[1]
    assert.same({"bad", 0, 2, false, "x"}, {row.text, row.label, row.score, row.flag, row.any})
    assert.same({2, 3}, row.pair:tolist())
    assert.same({y = 2}, set:get(2).any)
    check.raises("Table: index 3 is out of range (0 to 2)", function() return set[3] end)
    check.raises("Table: index -1 is out of range", function() return set:get(-1) end)
    assert.equal("Table(columns=[text, label, score, flag, pair, any], num_rows=3)", tostring(set))
  end)

  it("returns columns, tensors where they are numbers", function()
    assert.same({"string", "int64", "float64", "bool", "int64", "list"}, {set:features().text, set:features().label,
      set:features().score, set:features().flag, set:features().pair, set:features().any})
    assert.same({"fine", "bad", ""}, set:column("text"))
    assert.same({true, false, true}, column(set, "flag"))
    check.raises("column: there is no column 'labels' (there are: text, label, score, flag, pair, any) (did you mean "
      .. "'label'?)", function() set:column("labels") end)
  end)

  it("keeps whole numbers exact, beyond 2^53 in a tensor", function()
    local big = data.Table {n = accelhost.tensor({1, 2 ^ 53}, {dtype = "int64"}) + 1}
    assert.equal(2, big[0].n)
    assert.equal("tensor(9007199254740993)", tostring(big[1].n))
  end)

  it("is collated by a loader, in batches of tensors and texts", function()
    local plain = set:remove_columns {"any"}
    local seen = {}
    for batch in data.DataLoader(plain, {batch_size = 2}) do
      seen[#seen + 1] = batch
      assert.equal("float64", batch.score.dtype)
    end
    assert.same({{"fine", "bad"}, {""}}, {seen[1].text, seen[2].text})
    assert.same({2, 0}, seen[1].label:tolist())
    assert.same({{4, 5}}, seen[2].pair:tolist())
    for workers = 0, 1 do
      local lengths = {}
      for batch in data.DataLoader(plain, {batch_size = 3, num_workers = workers, collate_fn = function(rows)
        return accelhost.tensor {#rows[1].text, #rows[2].text, rows[3].label}
      end}) do lengths = batch:tolist() end
      assert.same({4, 3, 1}, lengths)
    end
  end)

  it("chooses, renames and removes columns", function()
    assert.same({"score", "text"}, set:select_columns({"score", "text"}).column_names)
    assert.same({"label"}, set:select_columns("label").column_names)
    local renamed = set:rename_column("label", "labels")
    assert.same({"text", "labels", "score", "flag", "pair", "any"}, renamed.column_names)
    assert.equal(2, renamed[0].labels)
    assert.equal(2, set[0].label)
    check.raises("rename_column: there is a column 'text' already", function() set:rename_column("label", "text") end)
    check.raises("remove_columns: there is no column 'x'", function() set:remove_columns("x") end)
  end)

  it("chooses rows, also of chosen rows", function()
    local some = numbers(10):select {9, 4, 4, 0}:select(accelhost.tensor({3, 1}, {dtype = "int64"}))
    assert.same({0, 4}, column(some))
    assert.equal("row 4", some[1].name)
    check.raises("select: index 4 is out of range (0 to 3)", function() numbers(4):select {4} end)
    local odd = numbers(10):filter(function(row) return row.n % 2 == 1 end)
    assert.same({1, 3, 5, 7, 9}, column(odd))
    assert.same({5, 7, 9}, column(odd:filter(function(_, i) return i > 1 end, {with_indices = true})))
    check.raises("filter: fn: expected true or false for row 0, got nil", function() odd:filter(function() end) end)
    assert.equal(0, #numbers(3):filter(function() return false end))
  end)

  it("shuffles in the order of PyTorch's randperm with the seed", function()
    assert.same(SEED42, column(numbers(8):shuffle{seed = 42}))
    accelhost.manual_seed(7)
    local expected = accelhost.randperm(8):tolist()
    accelhost.manual_seed(7)
    assert.same(expected, column(numbers(8):shuffle()))
    local generator = accelhost.Generator()
    generator:manual_seed(42)
    assert.same(SEED42, column(numbers(8):shuffle{generator = generator}))
  end)

  it("parts into train and test by that order", function()
    local order, parts = SEED42, numbers(8):train_test_split{test_size = 3, seed = 42}
    assert.same({order[1], order[2], order[3]}, column(parts.test))
    assert.same({order[4], order[5], order[6], order[7], order[8]}, column(parts.train))
    parts = numbers(8):train_test_split{test_size = 0.3, shuffle = false}
    assert.same({0, 1, 2, 3, 4}, column(parts.train))
    assert.same({5, 6, 7}, column(parts.test))
    parts = numbers(8):train_test_split()
    assert.same({6, 2}, {#parts.train, #parts.test})
    parts = numbers(8):train_test_split{train_size = 0.5, test_size = 1}
    assert.same({4, 1}, {#parts.train, #parts.test})
    check.raises("train_test_split: test_size: expected a share below 1 or at most 8 rows, got 9",
      function() numbers(8):train_test_split{test_size = 9} end)
    check.raises("train_test_split: 6 rows to train and 3 to test of 8",
      function() numbers(8):train_test_split{test_size = 3, train_size = 6} end)
    check.raises("none is left to train", function() numbers(1):train_test_split() end)
  end)

  it("sorts by a column, equal rows in their order, NaN last", function()
    local mixed = data.Table {k = {2, 0 / 0, 1, 2, -1}, n = {0, 1, 2, 3, 4}, t = {"b", "a", "ab", "", "B"}}
    assert.same({4, 2, 0, 3, 1}, column(mixed:sort("k")))
    assert.same({0, 3, 2, 4, 1}, column(mixed:sort("k", {reverse = true})))
    assert.same({3, 4, 1, 2, 0}, column(mixed:sort("t")))
    check.raises("sort: column 'flag' holds true in row 0", function() set:sort("flag") end)
    assert.same({"b", "a", "ab", "", "B"}, mixed:unique("t"))
    assert.same({2, 1, -1}, mixed:unique("k"))
  end)
end)

describe("Mapping a table", function()
  it("adds columns and replaces others", function()
    local set = numbers(5):select {4, 0, 2}:map(function(row, i)
      return {n = row.n * 10, at = i, z = {row.name}, half = row.n / 4, flag = i == 1}
    end, {with_indices = true})
    assert.same({"n", "name", "at", "flag", "half", "z"}, set.column_names)
    assert.same({40, 0, 20}, column(set))
    assert.same({"row 4", "row 0", "row 2"}, set:column("name"))
    assert.same({0, 1, 2}, column(set, "at"))
    assert.same({1, 0, 0.5}, column(set, "half"))
    assert.same({false, true, false}, column(set, "flag"))
    assert.same({"row 2"}, set[2].z)
    assert.same({"row 2", "row 4"}, set:select({2, 0}):column("name"))
  end)

  it("accepts batches of columns, and may change the number of rows", function()
    local sizes = {}
    local set = numbers(5):map(function(batch)
      sizes[#sizes + 1] = #batch.name
      return {double = batch.n * 2, ids = accelhost.stack({batch.n, batch.n + 1}, 1)}
    end, {batched = true, batch_size = 2})
    assert.same({2, 2, 1}, sizes)
    assert.same({0, 2, 4, 6, 8}, column(set, "double"))
    assert.same({3, 4}, set[3].ids:tolist())
    assert.same({"n", "name", "double", "ids"}, set.column_names)
    local twice = numbers(3):map(function(names)
      local list = {}
      for _, name in ipairs(names) do list[#list + 1], list[#list + 2] = name, name .. "!" end
      return {text = list}
    end, {batched = true, remove_columns = {"n", "name"}, input_columns = "name"})
    assert.same({"row 0", "row 0!", "row 1", "row 1!", "row 2", "row 2!"}, twice:column("text"))
    check.raises("map: fn returned 1 rows for 3, which column 'n' does not fit; remove_columns removes it", function()
      numbers(3):map(function() return {x = {1}} end, {batched = true})
    end)
  end)

  it("keeps tensors of different lengths in a list", function()
    local set = numbers(3):map(function(row) return {ids = accelhost.arange(row.n + 1)} end)
    assert.same({"list", 3}, {set:features().ids, set[2].ids:size(0)})
  end)

  it("reports a wrong result of fn", function()
    check.raises("map: fn: expected a table of columns by name, got nil", function()
      numbers(2):map(function() end)
    end)
    check.raises("map: fn: column 'x': expected a tensor or a table of values, got number 1", function()
      numbers(2):map(function() return {x = 1} end, {batched = true})
    end)
    check.raises("map: there is no column 'x'", function()
      numbers(2):map(function() return {} end, {remove_columns = "x"})
    end)
  end)
end)

describe("Making a table", function()
  it("needs columns of one length", function()
    check.raises("Table: column 'b' has 1 rows, column 'a' 2", function() data.Table {a = {1, 2}, b = {1}} end)
    check.raises("Table: column 'a': expected a tensor or a table of values, got 'x'",
      function() data.Table {a = "x"} end)
    check.raises("Table: column 'b' is missing in column_names",
      function() data.Table({a = {1}, b = {1}}, {"a"}) end)
  end)
end)
