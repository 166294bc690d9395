local C = require "accelhost._C"

if not pcall(C.sqlite.open, ":memory:") then
  return describe("A database", function() pending "needs accelhost-sqlite.so, which is built where SQLite is" end)
end

describe("A database", function()
  local db
  before_each(function()
    db = C.sqlite.open ":memory:"
    db:execute "CREATE TABLE t (i INTEGER, r REAL, s TEXT) STRICT"
  end)

  it("keeps numbers, texts with any bytes, and nothing", function()
    db:execute("INSERT INTO t VALUES (?, ?, ?)", {2 ^ 53, 0.1, "a\0b'\200"})
    db:execute("INSERT INTO t VALUES (:i, :r, :s)", {i = true, r = math.huge})
    db:execute("INSERT INTO t VALUES (?, ?, ?)", {-1, 0 / 0, ""})
    assert.same({{i = 2 ^ 53, r = 0.1, s = "a\0b'\200"}, {i = 1, r = math.huge}, {i = -1, s = ""}},
      db:execute "SELECT * FROM t")
  end)

  it("runs more different statements than it keeps", function()
    for i = 1, 100 do assert.same({{n = i}}, db:execute(("SELECT %d AS n"):format(i))) end
    for i = 1, 100 do assert.same({{n = i}}, db:execute("SELECT ? AS n", {i})) end
  end)

  it("is rid of a statement that failed", function()
    db:execute "CREATE UNIQUE INDEX one ON t (i)"
    db:execute("INSERT INTO t (i) VALUES (?)", {1})
    for _ = 1, 3 do
      assert.error_matches(function() db:execute("INSERT INTO t (i) VALUES (?)", {1}) end,
        "UNIQUE constraint failed: t.i")
    end
    db:execute("INSERT INTO t (i) VALUES (?)", {2})
    assert.equal(2, #db:execute "SELECT * FROM t")
  end)

  for _, case in ipairs {
    {"SELECT * FROM u", nil, 'no such table: u %(in "SELECT %* FROM u"%)'},
    {"SELEC 1", nil, "syntax error"},
    {"SELECT 1; SELECT 2", nil, "expected one statement"},
    {"", nil, "expected one statement"},
    {"INSERT INTO t VALUES (?, ?, ?)", {"x", 1, 1}, "cannot store TEXT value in INTEGER column t.i"},
    {"SELECT ?", {1, 2}, "2 values for 1 parameters"},
    {"SELECT ?", {{}}, "parameter 1 is .*table.*, which no column holds"},
  } do
    it(("refuses %q with: %s"):format(case[1], case[3]), function()
      local fine, text = pcall(db.execute, db, case[1], case[2])
      assert.is_false(fine)
      assert.matches(case[3], text)
    end)
  end

  it("keeps statements from the schema's table, and schemas from functions with side effects", function()
    assert.same({{trusted_schema = 0}}, db:execute "PRAGMA trusted_schema")
    db:execute "PRAGMA writable_schema = ON"
    local fine, text = pcall(db.execute, db, "UPDATE sqlite_schema SET sql = 'CREATE TABLE t (x)'")
    assert.is_false(fine)
    assert.matches("table sqlite_master may not be modified", text)
  end)

  it("reports which file cannot be opened, is none of SQLite's, or is closed", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(("no database "):rep(100))
    file:close()
    local _, text = pcall(function() C.sqlite.open(path):execute "SELECT * FROM sqlite_master" end)
    os.remove(path)
    assert.matches(path .. "': file is not a database", text, 1)
    _, text = pcall(C.sqlite.open, path .. "/no", "read")
    assert.matches("unable to open database file", text)
    db:close()
    db:close()
    _, text = pcall(db.execute, db, "SELECT 1")
    assert.matches("the database is closed", text)
  end)
end)
