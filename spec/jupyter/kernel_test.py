"""The suite of jupyter_kernel_test on the kernel that KERNEL_NAME names, and what it has no test for."""
import os
import queue
import time
import unittest

import jupyter_kernel_test
from jupyter_client.blocking import BlockingKernelClient


class KernelTests(jupyter_kernel_test.KernelTests):
    kernel_name = os.environ.get("KERNEL_NAME", "accelhost")
    language_name = "lua"
    file_extension = ".lua"
    code_hello_world = "print 'hello, world'"
    code_stderr = "io.stderr:write 'test'"
    completion_samples = [
        {"text": "nn.Softp", "matches": {"Softplus"}},
        {"text": "pri", "matches": {"print"}},
        {"text": "%glo", "matches": {"globals"}},
    ]
    complete_code_samples = ["1", "print 'hi'", "for i = 1, 2 do\n  print(i)\nend", "%time 1 + 1"]
    incomplete_code_samples = ["for i = 1, 2 do", "local t = {", "%time for i = 1, 2 do"]
    invalid_code_samples = ["for = 1", "x = = 2"]
    code_clear_output = "clear"
    code_generate_error = "error 'bad'"
    code_execute_result = [
        {"code": "1 + 2 + 3", "result": "6"},
        {"code": "local kept = {1, 2, 3}\nkept[3]", "result": "3"},
        {"code": "'text'", "result": '"text"'},
    ]
    code_display_data = [
        {"code": "accelhost.display(zeros(3, 8, 8):to 'uint8')", "mime": "image/png"},
        {"code": "accelhost.display(zeros(2, 2))", "mime": "text/html"},
    ]
    code_history_pattern = "1 + *"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "nn.Linear"

    def outputs(self, code, **options):
        reply, messages = self.execute_helper(code=code, **options)
        return reply, [(m["msg_type"], m["content"]) for m in messages]

    def test_locals_live_in_later_cells(self):
        self.flush_channels()
        self.outputs("local kept = 41")
        _, found = self.outputs("kept + 1")
        self.assertEqual(found[-1][1]["data"]["text/plain"], "42")

    def test_a_traceback_names_cell_and_line(self):
        self.flush_channels()
        reply, _ = self.outputs("local function f()\n  error 'deep'\nend\nf()")
        number = reply["content"]["execution_count"]
        self.assertEqual(reply["content"]["status"], "error")
        self.assertIn(f"[{number}]:2: deep", "\n".join(reply["content"]["traceback"]))

    def test_an_interrupt_ends_the_cell_only(self):
        self.flush_channels()
        self.outputs("kept_global = 7")
        self.kc.execute("while true do end")
        time.sleep(0.5)
        self.km.interrupt_kernel()
        reply = self.get_non_kernel_info_reply(timeout=10)
        self.assertEqual(reply["content"]["status"], "error")
        self.assertEqual(reply["content"]["ename"], "Interrupted")
        self.flush_channels()
        _, found = self.outputs("kept_global")
        self.assertEqual(found[-1][1]["data"]["text/plain"], "7")

    def test_input_asks_the_client(self):
        self.flush_channels()
        self.kc.execute("local name = accelhost.input 'Name? '\nname .. io.read()", allow_stdin=True)
        request = self.kc.get_stdin_msg(timeout=10)
        self.assertEqual(request["content"], {"prompt": "Name? ", "password": False})
        self.kc.input("Ada")
        self.kc.get_stdin_msg(timeout=10)
        self.kc.input("!")
        reply = self.get_non_kernel_info_reply(timeout=10)
        self.assertEqual(reply["content"]["status"], "ok")
        results = []
        while True:
            try:
                message = self.kc.get_iopub_msg(timeout=1)
            except queue.Empty:
                break
            if message["msg_type"] == "execute_result":
                results.append(message["content"]["data"]["text/plain"])
        self.assertEqual(results, ['"Ada!"'])

    def test_cells_after_a_failed_one_are_aborted(self):
        self.flush_channels()
        first = self.kc.execute("$ sleep 0.5\nerror 'bad'")
        second = self.kc.execute("1 + 1")
        states = {}
        while len(states) < 2:
            reply = self.get_non_kernel_info_reply(timeout=10)
            states[reply["parent_header"]["msg_id"]] = reply["content"]["status"]
        self.assertEqual(states, {first: "error", second: "aborted"})

    def test_late_text_belongs_to_its_cell(self):
        self.flush_channels()
        first = self.kc.execute("$ (sleep 1; echo late) &")
        self.get_non_kernel_info_reply(timeout=10)
        self.kc.execute("print 'soon'")
        self.get_non_kernel_info_reply(timeout=10)
        parents = {}
        while "late\n" not in parents:
            message = self.kc.get_iopub_msg(timeout=10)
            if message["msg_type"] == "stream":
                parents[message["content"]["text"]] = message["parent_header"]["msg_id"]
        self.assertEqual(parents["late\n"], first)

    def test_a_second_client_sees_the_cells_of_the_first(self):
        self.flush_channels()
        other = BlockingKernelClient()
        other.load_connection_file(self.km.connection_file)
        other.start_channels()
        other.wait_for_ready(timeout=20)
        while self.kc.get_iopub_msg(timeout=10)["msg_type"] != "iopub_welcome":
            pass
        self.outputs("print 'for all'")
        texts = []
        while "for all\n" not in texts:
            message = other.get_iopub_msg(timeout=10)
            if message["msg_type"] == "stream":
                texts.append(message["content"]["text"])
        other.stop_channels()


class WelcomeTests(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = KernelTests.kernel_name
    support_iopub_welcome = True


if __name__ == "__main__":
    unittest.main()
