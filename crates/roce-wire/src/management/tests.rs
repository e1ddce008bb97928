//! Properties of all messages.

use std::net::IpAddr;

use proptest::prelude::*;
use roce_fuzz_support::{check_seed, replay};

use super::*;
use crate::fuzzing::management_datagram;
use crate::{Gid, PathMtu, Psn, Qpn};

/// Bytes that carry no message: the reserved bits of the header and of each message.
fn reserved_bits(attribute: CmAttribute) -> [u8; MANAGEMENT_DATAGRAM_LEN] {
    let mut reserved = [0; MANAGEMENT_DATAGRAM_LEN];
    reserved[MANAGEMENT_HEADER_LEN..].fill(0xff);
    for field in attribute.fields() {
        for bit in field.first_bit..field.first_bit + field.bits {
            let byte = &mut reserved[MANAGEMENT_HEADER_LEN + bit / 8];
            assert_ne!(*byte & 0x80 >> (bit % 8), 0, "{attribute:?}: {} overlaps", field.name);
            *byte &= !(0x80 >> (bit % 8));
        }
    }
    reserved
}

#[test]
fn fields_do_not_overlap_and_end_with_the_private_data() {
    for attribute in CmAttribute::ALL {
        assert_eq!(reserved_bits(attribute)[MANAGEMENT_DATAGRAM_LEN - 1], 0, "{attribute:?}");
        assert_eq!(CmAttribute::from_code(attribute.code()), Some(attribute));
    }
}

/// A datagram of `attribute` whose body is `body`.
fn datagram(attribute: CmAttribute, transaction: u64, body: &[u8]) -> Vec<u8> {
    let header = ManagementHeader::for_cm(attribute, transaction).to_bytes();
    let mut bytes = header.to_vec();
    bytes.extend(body);
    bytes.resize(MANAGEMENT_DATAGRAM_LEN, 0);
    bytes
}

proptest! {
    //= test cm-messages
    #[test]
    fn every_bit_but_the_reserved_ones_survives_decoding(
        attribute in prop::sample::select(&CmAttribute::ALL[..]),
        transaction: u64,
        body in prop::collection::vec(any::<u8>(), CM_BODY_LEN),
    ) {
        let bytes = datagram(attribute, transaction, &body);
        let decoded = CmDatagram::decode(&bytes).unwrap();
        let reserved = reserved_bits(attribute);
        let kept: Vec<u8> = bytes.iter().zip(reserved).map(|(byte, no)| byte & !no).collect();
        prop_assert_eq!(&decoded.encode()[..], &kept[..]);
        prop_assert_eq!(decoded.message.attribute(), attribute);
        prop_assert_eq!(decoded.transaction, transaction);
        prop_assert_eq!(CmDatagram::decode(&decoded.encode()), Ok(decoded));
    }

    #[test]
    fn addresses_of_rdma_cm_are_read_as_they_were_written(
        port: u16, source: [u8; 16], destination: [u8; 16], short: bool,
    ) {
        let address = |octets: [u8; 16]| match short {
            true => IpAddr::from(*octets.first_chunk::<4>().unwrap()),
            false => IpAddr::from(octets),
        };
        let header = CmaHeader::new(port, address(source), address(destination)).unwrap();
        prop_assert_eq!(CmaHeader::decode(&header.to_bytes()), Ok(header));
        prop_assert_eq!(header.source(), address(source));
        prop_assert_eq!(header.destination(), address(destination));
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        management_datagram(&bytes);
    }
}

/// A datagram of each kind, with fields that differ from zero.
fn samples() -> impl Iterator<Item = (CmAttribute, Vec<u8>)> {
    CmAttribute::ALL.into_iter().map(|attribute| {
        let body: Vec<u8> = (1..=CM_BODY_LEN as u8).collect();
        let bytes = datagram(attribute, 0x0102_0304_0506_0708, &body);
        (attribute, CmDatagram::decode(&bytes).unwrap().encode().to_vec())
    })
}

//= test cm-datagram-length
#[test]
fn every_prefix_is_refused_by_its_length() {
    for (_, bytes) in samples() {
        for len in 0..bytes.len() {
            let refused = CmDatagram::decode(&bytes[..len]);
            assert_eq!(refused, Err(ManagementError::Length(len)));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(CmDatagram::decode(&longer), Err(ManagementError::Length(257)));
    }
}

#[test]
fn every_bit_flip_changes_one_field_or_the_kind_or_is_refused() {
    for (attribute, bytes) in samples() {
        let original = CmDatagram::decode(&bytes).unwrap();
        let reserved = reserved_bits(attribute);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            management_datagram(&flipped);
            // Reserved by the header, or without meaning for connection management.
            let is_ignored =
                matches!(bit / 8, 4..8 | 18..24) || reserved[bit / 8] & 0x80 >> (bit % 8) != 0;
            match CmDatagram::decode(&flipped) {
                Ok(read) => assert_eq!(read == original, is_ignored, "{attribute:?} bit {bit}"),
                Err(_) => assert!(bit / 8 < MANAGEMENT_HEADER_LEN),
            }
        }
    }
}

//= test cm-header
#[test]
fn other_versions_classes_methods_and_attributes_are_refused_under_a_name() {
    let (_, bytes) = samples().next().unwrap();
    let refusals = [
        (0, ManagementError::BaseVersion(0x80), "cm_drop_base_version"),
        (1, ManagementError::Class { class: 0x80, version: 2 }, "cm_drop_class"),
        (2, ManagementError::Class { class: 7, version: 0x80 }, "cm_drop_class"),
        (3, ManagementError::Method(0x80), "cm_drop_method"),
        (17, ManagementError::Attribute(0x80), "cm_drop_attribute"),
    ];
    for (at, error, counter) in refusals {
        let mut other = bytes.clone();
        other[at] = 0x80;
        assert_eq!(CmDatagram::decode(&other), Err(error));
        assert_eq!(error.counter(), counter);
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.as_chunks::<2>().0;
    pairs.iter().map(|it| u8::from_str_radix(str::from_utf8(it).unwrap(), 16).unwrap()).collect()
}

/// Checks that `bytes`, as rxe sent them, are read as `message`, which is written as they are.
fn check_rxe(bytes: &str, message: CmMessage) {
    let bytes = datagram(message.attribute(), 0x1234, &hex(bytes));
    let datagram = CmDatagram { transaction: 0x1234, message };
    assert_eq!(CmDatagram::decode(&bytes), Ok(datagram));
    assert_eq!(datagram.encode()[..], bytes[..]);
}

const CLIENT: CommunicationId = CommunicationId(0x194b_7b0b);
const SERVER: CommunicationId = CommunicationId(0x0774_5d5b);

//= test cm-req
//= test cm-service-id
//= test cm-cma-header
#[test]
fn a_request_of_rxe_is_read_and_written() {
    let [client, server] = ["10.9.0.2", "10.9.0.1"].map(|it| it.parse::<IpAddr>().unwrap());
    let header = CmaHeader::new(0xd7c6, client, server).unwrap();
    let mut private_data = [0; 92];
    private_data[..CMA_HEADER_LEN].copy_from_slice(&header.to_bytes());
    let request = Req {
        local_id: CLIENT,
        service_id: ServiceId::from_port(PortSpace::TCP, 7174),
        local_ca_guid: 0x0000_00ff_fe00_0002,
        local_qpn: Qpn::new(0x14).unwrap(),
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: CmTimeout::from_code(20),
        transport_service: TransportService::Rc,
        starting_psn: Psn::new(0xc7_b33c).unwrap(),
        local_response_timeout: CmTimeout::from_code(20),
        retry_count: 7,
        partition_key: 0xffff,
        path_mtu: PathMtu::B1024.code(),
        rnr_retry_count: 7,
        max_cm_retries: 15,
        primary_local_lid: 0xffff,
        primary_remote_lid: 0xffff,
        primary_local_gid: Gid::from(client),
        primary_remote_gid: Gid::from(server),
        primary_flow_label: 0xa3d00,
        primary_hop_limit: 64,
        primary_ack_timeout: CmTimeout::from_code(19),
        private_data,
        ..Req::default()
    };
    let addresses = "00000000 00000000 0000ffff 0a090002 00000000 00000000 0000ffff 0a090001";
    let alternate = "00".repeat(44);
    let cma = "0040d7c6 00000000 00000000 00000000 0a090002 00000000 00000000 00000000 0a090001";
    let bytes = format!(
        "194b7b0b 00000000 0000000001061c06 000000fffe000002 00000000 00000000 00001401 00000001 \
         000000a0 c7b33ca7 ffff37f0 ffffffff {addresses} a3d00000 00400098 {alternate} {cma}"
    );
    check_rxe(&bytes, CmMessage::Req(request));
}

#[test]
fn the_other_messages_of_rxe_are_read_and_written() {
    let rep = Rep {
        local_id: SERVER,
        remote_id: CLIENT,
        local_qpn: Qpn::new(0x14).unwrap(),
        starting_psn: Psn::new(0xf9_c73c).unwrap(),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: CmTimeout::from_code(15),
        rnr_retry_count: 7,
        local_ca_guid: 0x0000_00ff_fe00_0001,
        ..Rep::default()
    };
    check_rxe(
        "07745d5b 194b7b0b 00000000 00001400 00000000 f9c73c00 010178e0 000000fffe000001",
        CmMessage::Rep(rep),
    );
    let rtu = Rtu { local_id: CLIENT, remote_id: SERVER, ..Rtu::default() };
    check_rxe("194b7b0b 07745d5b", CmMessage::Rtu(rtu));
    let dreq = Dreq {
        local_id: CLIENT,
        remote_id: SERVER,
        remote_qpn: Qpn::new(0x14).unwrap(),
        ..Dreq::default()
    };
    check_rxe("194b7b0b 07745d5b 00001400", CmMessage::Dreq(dreq));
    let drep = Drep { local_id: SERVER, remote_id: CLIENT, ..Drep::default() };
    check_rxe("07745d5b 194b7b0b", CmMessage::Drep(drep));
    let rej = Rej {
        remote_id: CommunicationId(0x1b4b_7b0b),
        rejected: AnsweredMessage::Req,
        reason: RejectReason::INVALID_SERVICE_ID,
        ..Rej::default()
    };
    check_rxe("00000000 1b4b7b0b 00000008", CmMessage::Rej(rej));
}

#[test]
fn every_datagram_in_the_corpus_is_refused_or_read() {
    replay("management_datagram", CmAttribute::ALL.len(), management_datagram);
}

/// The seeds are a datagram of each kind. `ROCE_WRITE_SEEDS=1` writes them.
#[test]
fn the_seeds_are_a_datagram_of_each_kind() {
    for (attribute, bytes) in samples() {
        let name = attribute.name().to_lowercase().replace(' ', "_");
        check_seed("management_datagram", &name, &bytes);
    }
}
