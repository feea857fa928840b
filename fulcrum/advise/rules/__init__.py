"""The rules of the audit, one small file for each; `rule_list.py` names them all."""
