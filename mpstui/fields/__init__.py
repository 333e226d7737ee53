"""What a daemon, server, client, device, limit, event and problem has: one row for each thing that is shown of it.

From these rows alone come the overview's columns with their order and filter, the details, the text and the JSON of
``status``, the JSON of ``events``, and the JSON Schemas. A row that is added to a table is shown in all of them; what
is not said of it follows from its type. Pure: a value of the model in, text out.

What a row is stands in ``rows``; the tables, each with what their cells say, in ``client``, ``daemon``, ``device``,
``event`` and ``node``. Whoever shows them, or prints a table of their own, takes both from here.
"""

from mpstui.fields.client import ACTIVITY as ACTIVITY
from mpstui.fields.client import CLIENT as CLIENT
from mpstui.fields.client import GROUP as GROUP
from mpstui.fields.client import GROUPED_NODE as GROUPED_NODE
from mpstui.fields.client import GROUPS as GROUPS
from mpstui.fields.client import LAUNCHER as LAUNCHER
from mpstui.fields.client import Group as Group
from mpstui.fields.client import GroupedNode as GroupedNode
from mpstui.fields.client import grouped as grouped
from mpstui.fields.client import groups_of as groups_of
from mpstui.fields.common import default_facts as default_facts
from mpstui.fields.daemon import CHUNKS as CHUNKS
from mpstui.fields.daemon import DAEMON as DAEMON
from mpstui.fields.daemon import LIMIT as LIMIT
from mpstui.fields.daemon import NAMESPACE as NAMESPACE
from mpstui.fields.daemon import PARTITION as PARTITION
from mpstui.fields.daemon import PARTITIONS as PARTITIONS
from mpstui.fields.daemon import SERVER as SERVER
from mpstui.fields.daemon import V3_PARTITION as V3_PARTITION
from mpstui.fields.daemon import V3_SERVER as V3_SERVER
from mpstui.fields.daemon import Limit as Limit
from mpstui.fields.daemon import limits_of as limits_of
from mpstui.fields.device import DEVICE as DEVICE
from mpstui.fields.device import device_load as device_load
from mpstui.fields.device import memory_percent as memory_percent
from mpstui.fields.event import EVENT as EVENT
from mpstui.fields.event import EVENT_SEVERITY as EVENT_SEVERITY
from mpstui.fields.event import NOISE as NOISE
from mpstui.fields.event import PROBLEM as PROBLEM
from mpstui.fields.event import RANKED as RANKED
from mpstui.fields.event import SUSPECTS as SUSPECTS
from mpstui.fields.event import pids_of as pids_of
from mpstui.fields.event import severity as severity
from mpstui.fields.node import CHOICES as CHOICES
from mpstui.fields.node import RESULT as RESULT
from mpstui.fields.node import SNAPSHOT as SNAPSHOT
from mpstui.fields.node import UnknownFieldError as UnknownFieldError
from mpstui.fields.node import choose as choose
from mpstui.fields.rows import FLAG as FLAG
from mpstui.fields.rows import INTEGER as INTEGER
from mpstui.fields.rows import NUMBER as NUMBER
from mpstui.fields.rows import OBJECT as OBJECT
from mpstui.fields.rows import OBJECTS as OBJECTS
from mpstui.fields.rows import PATH as PATH
from mpstui.fields.rows import SCHEMA as SCHEMA
from mpstui.fields.rows import SECONDS as SECONDS
from mpstui.fields.rows import SHARE as SHARE
from mpstui.fields.rows import SIZE as SIZE
from mpstui.fields.rows import SIZES as SIZES
from mpstui.fields.rows import TEXT as TEXT
from mpstui.fields.rows import TEXTS as TEXTS
from mpstui.fields.rows import TIME as TIME
from mpstui.fields.rows import WORDS as WORDS
from mpstui.fields.rows import Chosen as Chosen
from mpstui.fields.rows import Column as Column
from mpstui.fields.rows import Detail as Detail
from mpstui.fields.rows import Fact as Fact
from mpstui.fields.rows import Field as Field
from mpstui.fields.rows import NotingView as NotingView
from mpstui.fields.rows import Shown as Shown
from mpstui.fields.rows import Text as Text
from mpstui.fields.rows import Thing as Thing
from mpstui.fields.rows import Total as Total
from mpstui.fields.rows import Type as Type
from mpstui.fields.rows import View as View
from mpstui.fields.rows import as_json as as_json
from mpstui.fields.rows import enum as enum
from mpstui.fields.rows import fitted as fitted
from mpstui.fields.rows import iso_time as iso_time
from mpstui.fields.rows import lay_out as lay_out
from mpstui.fields.rows import place_of as place_of
from mpstui.fields.rows import possible_columns as possible_columns
from mpstui.fields.rows import searched as searched
from mpstui.fields.rows import table as table
from mpstui.fields.rows import wished as wished
