-- The kernel's side of the protocol, by a client in Lua: signatures, bounds, channels, interrupts, lost clients.
local folder = require "spec.support.folder"
local jupyter = require "spec.support.jupyter"
local run = require "spec.support.run"

local function is_missing()
  local file = io.open(run.path:match "^(.*/)" .. "accelhost-jupyter.so")
  if file then file:close() end
  if not file or not jupyter.library() then
    pending "needs accelhost-jupyter.so and ZeroMQ"
    return true
  end
end

describe("a kernel", function()
  local path, kernel, client

  before_each(function()
    path = folder.make()
    if not jupyter.library() then return end
    kernel = jupyter.start(path)
    client = kernel:client()
  end)
  after_each(function()
    if client then client:close() end
    if kernel then kernel:close() end
    client, kernel = nil, nil
    folder.remove(path)
  end)

  it("answers heartbeats and kernel_info_request on both channels, and ends at shutdown_request", function()
    if is_missing() then return end
    assert.is_true(client:beats(10))
    for _, channel in ipairs {"shell", "control"} do
      client:send(channel, "kernel_info_request", {})
      local reply = client:receive(channel, "kernel_info_reply")
      assert.equal("lua", reply.content.language_info.name)
      assert.equal("5.4", reply.content.protocol_version)
    end
    client:send("control", "shutdown_request", {restart = true})
    assert.same({status = "ok", restart = true}, client:receive("control", "shutdown_reply").content)
    assert.same({status = "ok", restart = true}, client:receive("iopub", "shutdown_reply").content)
    assert.equal(0, kernel:wait(20))
  end)

  it("drops messages that are not signed by its key, or are none, and serves those that are", function()
    if is_missing() then return end
    client:send("shell", "execute_request", {code = "leaked = 1"}, "another key")
    client:send("shell", "execute_request", {code = "leaked = 1"}, "")
    client:send("control", "shutdown_request", {restart = false}, "another key")
    client:send("control", "interrupt_request", {}, "another key")
    local header = '{"msg_id": "x", "msg_type": "execute_request"}'
    for _, frames in ipairs {
      {"x"}, {"<IDS|MSG>"}, {"<IDS|MSG>", "", header, "{}", "{}", '{"code": "leaked = 1"}'},
      {"<IDS|MSG>", ("0"):rep(64), header, "{}", "{}", '{"code": "leaked = 1"}'},
      {"<IDS|MSG>", ("z"):rep(64), header, "{}", "{}", "{}"}, {"<IDS|MSG>", ("0"):rep(64), header},
    } do
      client:send_frames("shell", frames)
      client:send_frames("control", frames)
    end
    local many = {}
    for i = 1, 100 do many[i] = "frame" end
    client:send_frames("shell", many)
    assert.equal("ok", client:execute("assert(leaked == nil)").status)
    assert.is_nil(kernel:wait(0))
  end)

  it("keeps its cells in a file for the user alone, and finds them in the next session", function()
    if is_missing() then return end
    client:execute "first_cell = 'ä'"
    client:close()
    kernel:close()
    os.remove(path .. "/code")
    os.remove(path .. "/pid")
    kernel = jupyter.start(path)
    client = kernel:client()
    client:execute "second_cell = 2"
    client:send("shell", "history_request", {hist_access_type = "tail", n = 2, output = false, raw = true})
    assert.same({{1, 1, "first_cell = 'ä'"}, {2, 1, "second_cell = 2"}},
      client:receive("shell", "history_reply").content.history)
    local mode = io.popen(("stat -c %%a %s/accelhost/notebook_history"):format(path)):read "*l"
    assert.equal("600", mode)
  end)

  it("refuses content that is no object, and unknown requests, and lives on", function()
    if is_missing() then return end
    client:send("shell", "execute_request", {1, 2})
    client:send("shell", "execute_request", {code = 5, user_expressions = 3, silent = "x"})
    client:send("shell", "no_such_request", {})
    client:send("shell", "complete_request", {code = {}, cursor_pos = "x"})
    client:send("shell", "inspect_request", {code = "nn.", cursor_pos = -5})
    client:send("shell", "history_request", {hist_access_type = "range", start = "a"})
    client:send("shell", "comm_open", {comm_id = "c", target_name = "t"})
    assert.equal("c", client:receive("iopub", "comm_close").content.comm_id)
    assert.equal("ok", client:execute("1").status)
  end)

  it("is served while a cell runs, and interrupts that cell alone", function()
    if is_missing() then return end
    client:send("shell", "execute_request", {code = "io.write 'started'\nwhile true do end"})
    assert.equal("started", client:receive("iopub", "stream").content.text)
    assert.is_true(client:beats(10))
    client:send("control", "kernel_info_request", {})
    assert.truthy(client:receive("control", "kernel_info_reply"))
    client:send("control", "interrupt_request", {})
    assert.equal("ok", client:receive("control", "interrupt_reply").content.status)
    assert.equal("Interrupted", client:receive("shell", "execute_reply").content.ename)
    assert.equal("ok", client:execute("1 + 1").status)
    client:send("shell", "execute_request", {code = "io.write 'again'\nos.execute 'sleep 60'"})
    client:receive("iopub", "stream")
    kernel:signal "INT"
    os.execute "sleep 0.3"
    client:send("control", "interrupt_request", {})
    assert.equal("error", client:receive("shell", "execute_reply").content.status)
    assert.equal("ok", client:execute("2").status)
  end)

  it("outlives a client that vanishes while its cell asks and prints", function()
    if is_missing() then return end
    local other = kernel:client()
    local id = other:send("shell", "execute_request", {code = "for i = 1, 1e4 do print(i) end local x = io.read()",
      allow_stdin = true})
    assert.truthy(other:receive("stdin", "input_request"))
    other:close()
    client:send("control", "interrupt_request", {})
    assert.equal("ok", client:receive("control", "interrupt_reply").content.status)
    repeat
      local message = assert(client:receive("iopub", "status"))
    until message.parent == id and message.content.execution_state == "idle"
    assert.equal("ok", client:execute("3").status)
  end)

  it("asks the client that sent the cell, and refuses to ask one that cannot answer", function()
    if is_missing() then return end
    local other = kernel:client()
    local id = client:send("shell", "execute_request", {code = "accelhost.input 'Name? '", allow_stdin = true})
    local request = client:receive("stdin", "input_request")
    assert.same({id, "Name? "}, {request.parent, request.content.prompt})
    assert.is_nil(other:receive("stdin", nil, 0.1))
    client:send("stdin", "input_reply", {value = "Ada"})
    assert.equal('"Ada"', client:receive("iopub", "execute_result").content.data["text/plain"])
    client:receive("shell", "execute_reply")
    client:send("shell", "execute_request", {code = "io.read()", allow_stdin = false})
    assert.matches("answers no questions", client:receive("shell", "execute_reply").content.evalue)
    other:close()
  end)

  it("publishes all text of Lua, C and programs, in order, before the reply, as UTF-8", function()
    if is_missing() then return end
    local id = client:send("shell", "execute_request", {code = [[
      for i = 1, 20000 do print(i, "ä") end
      os.execute "printf 'from a program\n'"
      io.write "\255\254 bad \195"
      io.stderr:write "error"]]})
    local out, errors = {}, ""
    while true do
      local message = assert(client:receive("iopub"))
      if message.type == "stream" and message.content.name == "stdout" then out[#out + 1] = message.content.text end
      if message.type == "stream" and message.content.name == "stderr" then errors = errors .. message.content.text end
      if message.type == "status" and message.content.execution_state == "idle" then
        assert.equal(id, message.parent)
        break
      end
    end
    local wanted = {}
    for i = 1, 20000 do wanted[i] = i .. "\tä\n" end
    local text = table.concat(out)
    assert.is_true(text:find(table.concat(wanted) .. "from a program\n", 1, true) == 1)
    assert.matches("\239\191\189\239\191\189 bad ", text, 1, true)
    assert.equal("error", errors)
  end)

  it("attributes text that a program writes late to the cell that started it", function()
    if is_missing() then return end
    local id = client:send("shell", "execute_request", {code = "os.execute '(sleep 0.5; echo late) &'"})
    client:receive("shell", "execute_reply")
    client:execute "print 'soon'"
    while true do
      local message = assert(client:receive("iopub", "stream"))
      if message.content.text == "late\n" then
        assert.equal(id, message.parent)
        break
      end
    end
  end)

  it("runs cells beyond its most pipes while the programs of the earlier ones stay", function()
    if is_missing() then return end
    for _ = 1, 60 do assert.equal("ok", client:execute("os.execute 'sleep 5 &'").status) end
    for _ = 1, 60 do client:send("shell", "execute_request", {code = "os.execute 'sleep 5 &'"}) end
    assert.equal("ok", client:execute("print 'still'").status)
    local text = ""
    while not text:find "still\n$" do -- a text may come in pieces
      assert.is_nil(kernel:wait(0))
      text = text .. assert(client:receive("iopub", "stream"), text).content.text
    end
  end)
end)
