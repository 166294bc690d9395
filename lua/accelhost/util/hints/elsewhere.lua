--- What PyTorch, Accelerate and Python call it, and what it is here.
local elsewhere = {}

--- Fields and methods that are asked of an object: name -> what stands behind the object's name instead.
elsewhere.fields = {
  numpy = ":tolist()", type = ":to(dtype)", copy = ":clone()", len = "#",
  append = ":append(...)", environ = ".getenv(name)", load = ":load_state_dict(accelhost.load(path))",
  __len__ = ":len()", backwards = ":backward()", ndimension = ":dim()",
}

--- The same where a sentence is needed.
elsewhere.sentences = {
  cuda = 'write tensor:to "cuda", where its plugin is', cpu = 'write tensor:to "cpu"',
  values = "a reduction over a dim gives two results: local values, indices = x:max(1)",
  indices = "a reduction over a dim gives two results: local values, indices = x:max(1)",
  save_state = 'accelhost.save({model = model:state_dict(), optimizer = optimizer:state_dict()}, "run.safetensors")',
  load_state = 'local saved = accelhost.load "run.safetensors"; model:load_state_dict(saved.model)',
  save_model = 'accelhost.save(model:state_dict(), "model.safetensors")',
  save = 'accelhost.save(object, "file.safetensors")',
  autocast = "accelhost.autocast(\"cpu\", function() ... end), or accelerator:autocast(function() ... end)",
  log = "accelerator:print(...) prints on the main process",
  broadcast = "accelerator:gather(x) gives every process the values of all",
  init_process_group = "launch has done it when the script begins",
}

--- Words that a script uses as globals.
elsewhere.globals = {
  len = "#x is the length of x", range = "for i = 0, n - 1 do ... end counts", enumerate = "accelhost.enumerate",
  str = "tostring(x)", int = "math.floor(x)", float = "tonumber(x)", list = "{...} is a list",
  dict = "{...} is a table",
  isinstance = "type(x) == \"number\", nn.is_module(x), accelhost.is_tensor(x)", super = "Parent.method(self, ...)",
  max = "math.max", min = "math.min", abs = "math.abs", zip = "for i = 1, #list do", round = "(\"%.2f\"):format(x)",
  sum = "add in a loop, or accelhost.stack(list):sum() for tensors", f = "(\"loss %.3f\"):format(loss) fills a text",
  torch = "local accelhost = require \"accelhost\"",
  iter = "for inputs, labels in loader do ... break end takes one batch",
  nn = "local nn = accelhost.nn", F = "local F = accelhost.nn.functional", try = "pcall(function() ... end)",
  optim = "local optim = accelhost.optim", data = "local data = accelhost.data",
  accelhost = "local accelhost = require \"accelhost\"", tqdm = "accelhost.progress",
  self = "define the method with a colon, function Net:forward(x)", math = "Lua's own library",
  dist = "local dist = accelhost.distributed", sys = "arg has the script's arguments",
  time = "os.clock() and os.time()", random = "math.random, accelhost.rand", np = "accelhost.tensor, :tolist()",
  raise = "error(\"what went wrong\")", sorted = "table.sort(list)", any = "x:any()", all = "x:all()",
}

--- Options.
elsewhere.options = {
  download = "`accelhost data mnist --dir DIR` downloads the files", pin_memory = "leave it out",
  num_classes = "the last layer has as many outputs", device_ids = "accelhost launch spreads a script over processes",
  map_location = 'leave it out: t:to "cpu" moves what was read',
  weights_only = "leave it out: nothing in a file is run",
}

return elsewhere
